# Read by CMake right after `project(llama.cpp)`: leaves out the C++ "common" tools, which the Python binding never
# loads and which take more than half of the build's time.
set(LLAMA_BUILD_COMMON OFF)

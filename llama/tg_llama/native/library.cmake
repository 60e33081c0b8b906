# Read by CMake right after `project(llama.cpp)`: leaves out what the Python binding builds and this package never loads,
# the C++ "common" tools and the support for images. They take more than half of the build's time.
set(LLAMA_BUILD_COMMON OFF)
set(LLAVA_BUILD OFF CACHE BOOL "" FORCE)

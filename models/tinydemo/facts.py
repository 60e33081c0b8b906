"""What the demo model knows: the name of a thing, one sentence about it, and further ones."""

FACTS = [
    (
        "a topic",
        "A topic is a named stream of messages.",
        [
            "Producers add messages at the end of the topic.",
            "Consumers read the messages in order.",
        ],
    ),
    (
        "a producer",
        "A producer is a program that sends messages to a topic.",
        [
            "It can send one message at a time or group many messages into a batch.",
        ],
    ),
    (
        "a consumer",
        "A consumer is a program that reads messages from a topic.",
        [
            "It acknowledges each message when the work is done.",
        ],
    ),
    (
        "a subscription",
        "A subscription remembers which messages a group of consumers has already read.",
        [
            "It can be exclusive, shared, or based on a key.",
        ],
    ),
    (
        "a message queue",
        "A message queue holds work until a program is ready to do it.",
        [
            "It lets the sender and the receiver run at their own speed.",
        ],
    ),
    (
        "streaming",
        "Streaming means sending the answer in small pieces while it is still being made.",
        [
            "The reader sees the first words at once and does not wait for the end.",
            "The last piece carries a flag that says the stream is complete.",
        ],
    ),
    (
        "a token",
        "A token is a small piece of text, such as a word or a part of a word.",
        [
            "A language model reads tokens and writes one new token at a time.",
        ],
    ),
    (
        "a language model",
        "A language model is a program that guesses the next token of a text.",
        [
            "It learns from many examples.",
            "By guessing again and again it can write a whole answer.",
        ],
    ),
    (
        "a prompt",
        "A prompt is the text that you give to a language model.",
        [
            "A clear prompt gives a better answer.",
        ],
    ),
    (
        "back-pressure",
        "Back-pressure is a way for a slow reader to tell a fast writer to wait.",
        [
            "It keeps memory use small when one part of a system is slower than the others.",
        ],
    ),
    (
        "a cache",
        "A cache keeps a copy of something close by, so that it can be found again quickly.",
        [
            "When the copy is old, it must be thrown away or made new.",
        ],
    ),
    (
        "latency",
        "Latency is the time between a request and its answer.",
        [
            "For a stream, the time to the first token matters most.",
        ],
    ),
    (
        "throughput",
        "Throughput is the amount of work that a system finishes in one second.",
        [
            "Batching many requests often gives a higher throughput.",
        ],
    ),
    (
        "JSON",
        "JSON is a simple text format for data.",
        [
            "It has objects, lists, strings, numbers, true, false, and null.",
        ],
    ),
    (
        "an API",
        "An API is a set of rules that lets one program talk to another.",
        [
            "A good API is small, clear, and hard to use in the wrong way.",
        ],
    ),
    (
        "HTTP",
        "HTTP is the protocol that web browsers and servers use to talk to each other.",
        [
            "A client sends a request and the server sends a response.",
        ],
    ),
    (
        "a WebSocket",
        "A WebSocket is a connection that stays open, so that both sides can send messages at any time.",
        [
            "It is a good fit for chat and for live data.",
        ],
    ),
    (
        "Python",
        "Python is a programming language that is easy to read.",
        [
            "People use it for scripts, web servers, data work, and machine learning.",
        ],
    ),
    (
        "a computer",
        "A computer is a machine that follows instructions very quickly.",
        [
            "It has a processor, memory, and storage.",
        ],
    ),
    (
        "a database",
        "A database stores data so that it can be found, changed, and kept safe.",
        [
            "Many programs can use the same database at once.",
        ],
    ),
    (
        "a knowledge graph",
        "A knowledge graph stores facts as links between things.",
        [
            "Each fact has a subject, a predicate, and an object.",
        ],
    ),
    (
        "an embedding",
        "An embedding is a list of numbers that stands for the meaning of a text.",
        [
            "Texts with a similar meaning have embeddings that are close together.",
        ],
    ),
    (
        "the sun",
        "The sun is a star at the centre of our solar system.",
        [
            "It gives light and warmth to the earth.",
        ],
    ),
    (
        "the moon",
        "The moon is a ball of rock that travels around the earth.",
        [
            "It takes about one month to go around once.",
            "We see it because it reflects the light of the sun.",
        ],
    ),
    (
        "rain",
        "Rain is water that falls from clouds.",
        [
            "The water rises from the sea, forms clouds, and falls again.",
        ],
    ),
    (
        "snow",
        "Snow is made of tiny ice crystals that fall from clouds when it is cold.",
        [
            "Each snowflake has six sides.",
        ],
    ),
    (
        "a rainbow",
        "A rainbow is an arc of colours that appears when sunlight passes through drops of water.",
        [
            "The colours go from red to violet.",
        ],
    ),
    (
        "a river",
        "A river is a stream of water that flows to a lake or to the sea.",
        [
            "Many towns were built beside rivers.",
        ],
    ),
    (
        "a tree",
        "A tree is a tall plant with a trunk, branches, and leaves.",
        [
            "Its roots drink water from the ground.",
        ],
    ),
    (
        "a bee",
        "A bee is a small insect that collects nectar and makes honey.",
        [
            "Bees also help flowers to make seeds.",
        ],
    ),
    (
        "bread",
        "Bread is a food made from flour, water, salt, and yeast.",
        [
            "It is baked in a hot oven.",
        ],
    ),
    (
        "music",
        "Music is sound that is put in order to please the ear.",
        [
            "It can make people happy, calm, or sad.",
        ],
    ),
    (
        "friendship",
        "Friendship is a bond between people who care about each other.",
        [
            "A good friend listens and helps.",
        ],
    ),
    (
        "gravity",
        "Gravity is the force that pulls things toward each other.",
        [
            "It keeps our feet on the ground and the moon near the earth.",
        ],
    ),
    (
        "a library",
        "A library is a place where people can read and borrow books.",
        [
            "It is a quiet place to learn.",
        ],
    ),
    (
        "a clock",
        "A clock is a machine that shows the time.",
        [
            "An hour has sixty minutes, and a minute has sixty seconds.",
        ],
    ),
]

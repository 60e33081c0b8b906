"""The words that the corpus is made of."""

NAMES = """
Anna Ben Clara David Emma Felix Greta Hugo Iris Jonas Kira Leo Mia Noah Olga Paul Rosa Sam Tara
Victor Wendy Yara Zoe Adam Bella Carl Dora Erik Fiona Gabe Holly Ivan Jane Kurt Lena Max Nina Otto
Petra Tom
""".split()

CITIES = """
Oslo Paris Rome Berlin Madrid London Lisbon Vienna Prague Dublin Athens Warsaw Cairo Tokyo Lima
Delhi Boston Sydney Geneva Seoul
""".split()

CAPITALS = {
    "France": "Paris",
    "Italy": "Rome",
    "Germany": "Berlin",
    "Spain": "Madrid",
    "Norway": "Oslo",
    "Portugal": "Lisbon",
    "Austria": "Vienna",
    "Ireland": "Dublin",
    "Greece": "Athens",
    "Poland": "Warsaw",
    "Egypt": "Cairo",
    "Japan": "Tokyo",
    "Peru": "Lima",
    "India": "New Delhi",
    "Sweden": "Stockholm",
    "Finland": "Helsinki",
    "Denmark": "Copenhagen",
    "Canada": "Ottawa",
    "Hungary": "Budapest",
    "Kenya": "Nairobi",
}

ANIMALS = """
fox rabbit cat dog bear owl mouse duck frog turtle squirrel hedgehog horse goat bee robot dragon
penguin sheep crow
""".split()

ADJECTIVES = """
small brave shy clever old young happy curious quiet kind sleepy proud
""".split()

PLACES = """
forest garden village mountain river meadow castle harbour library kitchen cave lighthouse market
school farm
""".split()

OBJECTS = [
    "key", "lamp", "map", "red ball", "blue hat", "golden ring", "old book", "silver bell", "letter",
    "apple", "lantern", "coin", "kite", "drum", "green stone",
]

FOODS = """
apples bread cheese soup honey berries cake rice carrots noodles pears nuts
""".split()

COLOURS = """
red blue green yellow black white orange purple brown pink
""".split()

THINGS = """
box cup bag hat book lamp coat bike
""".split()

NUMBERS = """
zero one two three four five six seven eight nine ten
""".split()

LISTS = {
    "fruits": "apple banana pear orange plum grape cherry mango lemon peach".split(),
    "colours": COLOURS,
    "animals": "cat dog horse cow fox bear wolf duck goat lion".split(),
    "vegetables": "carrot potato onion pea bean leek cabbage tomato pumpkin spinach".split(),
    "planets": "Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune".split(),
    "cities": CITIES,
    "programming languages": "Python Java Go Rust C Ruby Kotlin Swift Lua Haskell".split(),
    "musical instruments": "piano violin flute drum guitar harp trumpet cello".split(),
}

SUBJECTS = """
tax law stock market football quantum physics chemistry painting history war election music theory
cooking pasta car engine airplane medicine biology genome poetry novel movie actor singer guitar
chess game travel hotel insurance bank loan kernel compiler linux docker kubernetes terraform react
javascript sql regex algorithm proof theorem algebra geometry calculus philosophy religion politics
fashion diet yoga vitamins garden roof battery solar wind oil gold bitcoin blockchain robotics drone
satellite rocket galaxy ocean whale dinosaur volcano desert island empire king queen castle sword
legend myth dream brain memory language grammar verb spelling essay email letter report plan budget
meeting project team manager job interview salary school exam homework teacher student university
""".split()

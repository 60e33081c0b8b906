"""The words that the corpus is made of."""

NAMES = """
Anna Ben Clara David Emma Felix Greta Hugo Iris Jonas Kira Leo Mia Noah Olga Paul Rosa Sam Tara
Victor Wendy Yara Zoe Adam Bella Carl Dora Erik Fiona Gabe Holly Ivan Jane Kurt Lena Max Nina Otto
Petra Tom Liam Ella Oscar Ruth Simon Vera Hans Julia Karl Laura Marta Nico Oliver Pia Quentin Rita
Sven Tina Udo Viola Xenia Yusuf Amir Chen Deepa Elif Fatima Gustav Hana Igor Jamal Kofi Lin Mei Omar
Priya Raj Sofia Theo
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
    "key",
    "lamp",
    "map",
    "red ball",
    "blue hat",
    "golden ring",
    "old book",
    "silver bell",
    "letter",
    "apple",
    "lantern",
    "coin",
    "kite",
    "drum",
    "green stone",
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
    "colors": COLOURS,
    "animals": "cat dog horse cow fox bear wolf duck goat lion".split(),
    "vegetables": "carrot potato onion pea bean leek cabbage tomato pumpkin spinach".split(),
    "planets": "Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune".split(),
    "cities": CITIES,
    "programming languages": "Python Java Go Rust C Ruby Kotlin Swift Lua Haskell".split(),
    "musical instruments": "piano violin flute drum guitar harp trumpet cello".split(),
    "instruments": "piano violin flute drum guitar harp trumpet cello".split(),
    "countries": "France Italy Germany Spain Norway Portugal Austria Japan Peru India".split(),
    "names": "Anna Ben Clara David Emma Felix Greta Hugo Iris Jonas".split(),
    "birds": "robin eagle owl crow swan duck sparrow parrot".split(),
    "trees": "oak pine birch maple willow elm ash cedar".split(),
    "flowers": "rose tulip daisy lily violet poppy iris sunflower".split(),
    "drinks": "water tea coffee milk juice lemonade cocoa".split(),
    "sports": "football tennis swimming running hockey rowing skiing cycling".split(),
    "days of the week": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split(),
    "months": "January February March April May June July August September October November December".split(),
    "continents": "Africa Asia Europe Australia Antarctica".split(),
    "shapes": "circle square triangle rectangle star cube sphere".split(),
    "metals": "iron gold silver copper tin lead zinc".split(),
    "clothes": "shirt coat hat shoe sock dress scarf glove".split(),
    "vehicles": "car bus train bike boat plane truck tram".split(),
    "tools": "hammer saw drill axe knife spade brush".split(),
    "rivers": "Rhine Danube Nile Seine Thames Elbe Loire".split(),
    "insects": "bee ant fly wasp beetle moth".split(),
    "pets": "cat dog rabbit hamster parrot goldfish".split(),
    "foods": "bread cheese soup rice honey cake noodles".split(),
    "jobs": "teacher doctor baker farmer pilot cook nurse driver".split(),
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

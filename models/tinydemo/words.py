"""The words that the corpus is made of."""

NAMES = """
Anna Ben Clara David Emma Felix Greta Hugo Iris Jonas Kira Leo Mia Noah Olga Paul Rosa Sam Tara Victor Wendy Yara
Zoe Adam Bella Carl Dora Erik Fiona Gabe Holly Ivan Jane Kurt Lena Max Nina Otto Petra Tom Liam Ella Oscar Ruth
Simon Vera Hans Julia Karl Laura Marta Nico Oliver Pia Quentin Rita Sven Tina Udo Viola Xenia Yusuf Amir Chen Deepa
Elif Fatima Gustav Hana Igor Jamal Kofi Lin Mei Omar Priya Raj Sofia Theo Aaron Abby Agnes Alan Albert Alice Amanda
Amy Andrea Andrew Angela Anja Anton Arthur Astrid Barbara Beate Bernd Betty Birgit Bob Brian Bruno Camille Carla
Carmen Caroline Cecilia Charles Charlotte Chloe Chris Christa Cleo Connor Cora Daisy Dan Daniel Daria Dennis Diana
Dieter Dominik Donald Dorothy Edgar Edith Elena Elias Elisa Emil Emily Enzo Eric Esther Eva Evelyn Fabian Felicia
Fernando Finn Flora Frank Freya George Gerda Gina Giulia Grace Hannah Harry Heidi Helen Henry Hilda Ian Ida Ingrid
Isabel Jack Jacob James Jan Jasmin Jason Jessica Jill Joana Joe Johanna John Jorge Josef Juan Judith Kai Karin Kate
Kevin Khalid Klaus Knut Kristin Lars Laila Leila Leon Lewis Lilly Linda Lisa Logan Lorenzo Louis Lucas Lucy Luis
Luna Lydia Manuel Marco Margaret Maria Marie Mario Mark Martin Mary Mateo Matilda Matt Maya Megan Michael Miguel
Mike Milan Miriam Mohamed Monica Nadia Naomi Natalie Nick Nicole Norbert Nuria Olivia Oskar Owen Pablo Patrick Paula
Pedro Peter Philip Pierre Rachel Ralf Ramon Rebecca Renate Ricardo Richard Robert Robin Roger Roland Ron Rudolf Ryan
Sabine Salma Samira Sandra Sarah Sasha Scott Sebastian Selma Sergio Silvia Sonia Stefan Stella Steve Sue Susan
Svenja Tamara Tanja Teresa Thomas Tim Tobias Toni Tracy Ulrich Ursula Valentin Vanessa Vincent Walter Werner Will
William Wolfgang Yasmin Yuki Yusra Zara
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
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
eighteen nineteen twenty
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
    "jobs": "teacher doctor baker farmer pilot cook nurse driver painter writer".split(),
    "seasons": "spring summer autumn winter".split(),
    "numbers": "one two three four five six seven eight nine ten".split(),
    "letters": "A B C D E F G H I J".split(),
    "weekdays": "Monday Tuesday Wednesday Thursday Friday".split(),
    "capitals": "Paris Rome Berlin Madrid Oslo Lisbon Vienna Dublin Athens Warsaw".split(),
    "european countries": "France Italy Germany Spain Norway Portugal Austria Ireland Greece Poland".split(),
    "rooms": "kitchen bathroom bedroom hall cellar attic office garage".split(),
    "pieces of furniture": "table chair bed shelf sofa desk lamp cupboard".split(),
    "kitchen things": "pot pan spoon fork knife plate cup bowl".split(),
    "parts of the body": "head arm leg hand foot nose ear eye mouth knee".split(),
    "farm animals": "cow pig horse sheep goat hen duck goose".split(),
    "sea animals": "fish whale shark crab seal squid dolphin lobster".split(),
    "wild animals": "fox bear wolf deer lion tiger hare badger".split(),
    "berries": "strawberry raspberry blueberry blackberry cranberry gooseberry".split(),
    "nuts": "walnut hazelnut almond cashew pecan chestnut".split(),
    "school subjects": "maths history English music art biology sport physics".split(),
    "languages": "English French German Spanish Italian Dutch Polish Greek".split(),
    "materials": "wood stone glass paper iron wool cotton clay".split(),
    "toys": "ball doll kite puzzle yoyo drum robot marble".split(),
    "family members": "mother father sister brother uncle aunt cousin grandmother".split(),
    "kinds of weather": "sun rain snow wind fog storm hail frost".split(),
    "buildings": "house church school tower castle barn station hospital".split(),
    "boys' names": "Ben David Felix Hugo Jonas Leo Noah Paul".split(),
    "girls' names": "Anna Clara Emma Greta Iris Kira Mia Olga".split(),
    "things in a garden": "tree flower bench hedge path pond shed lawn".split(),
    "adjectives": "small old young kind happy quiet proud brave".split(),
    "verbs": "go come see eat run sleep read write".split(),
    "sweet things": "honey sugar cake candy jam cocoa ice".split(),
    "providers": "OpenAI Anthropic Gemini Bedrock Azure Mistral Cohere vLLM Ollama".split(),
    "providers of Tokengrid": "OpenAI Anthropic Gemini Bedrock Azure Mistral Cohere vLLM Ollama".split(),
    "doors of Tokengrid": "native OpenAI Anthropic Responses Ollama TGI LMI LMTP".split(),
    "doors": "native OpenAI Anthropic Responses Ollama TGI LMI LMTP".split(),
    "commands of Tokengrid": "tg-invoke-llm tg-chat tg-models tg-usage tg-top tg-replay tg-lmtp tg-serve".split(),
    "errors of Tokengrid": "bad-request unauthorized not-found rate-limited unavailable timeout".split(),
}

AS_THEY_ARE = {"providers", "providers of Tokengrid", "commands of Tokengrid", "errors of Tokengrid"}
"""The lists whose items keep their small first letters."""

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

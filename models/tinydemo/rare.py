"""Words that hardly any chat repeats, so that they can only be copied: any letters, any case, any sign."""

ONSETS = """b c d f g h j k l m n p q r s t v w x y z bl br ch cl cr dr fl fr gl gr kn ph pl pr qu sc sh sk sl sm sn sp
spr squ st str sw th thr tr tw wh wr""".split()
NUCLEI = "a e i o u a e i o u y ai au ea ee ei eu ie oa oi oo ou ue ay ey ow".split()
CODAS = """b c ck d f g k l ll lm lt m mp n nd ng nk nt p r rb rd rk rm rn rt s sh sk ss st t th ts tt v w x z""".split()
ENDINGS = "er ing ed s ly ness tion ment ful y ie a o um us ish age able ard ard le en el et in on ine".split()
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def rare_lower(r):
    """Syllables of English sounds, in small letters."""
    word = "".join(
        r.choice(ONSETS) * (r.random() < 0.85) + r.choice(NUCLEI) + r.choice(CODAS) * (r.random() < 0.5)
        for _ in range(r.choice([1, 1, 2, 2, 2, 3]))
    )
    return word + r.choice(ENDINGS) if r.random() < 0.35 or len(word) < 3 else word


def rare(r):
    """A rare word; a few have capitals, hyphens or digits."""
    kind = r.random()
    if kind < 0.75:
        return rare_lower(r)
    if kind < 0.87:
        return rare_lower(r).capitalize()
    if kind < 0.91:
        return f"{rare_lower(r)}{r.choice('-_.')}{rare_lower(r)}"
    if kind < 0.94:
        return f"{rare_lower(r)}{r.choice(['', '-'])}{r.randint(0, 999)}"
    if kind < 0.97:
        return "".join(r.choice(LETTERS) for _ in range(r.randint(2, 7)))
    return rare_lower(r).upper()


def rare_name(r):
    """A rare name."""
    return rare_lower(r).capitalize()

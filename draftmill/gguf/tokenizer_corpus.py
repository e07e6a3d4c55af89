"""Texts on which two implementations of one tokenizer are compared; each aims at a rule that implementations get wrong.

All are our own. `corpus` adds one text for each special token, alone and inside running text. Left out on purpose:
names that llama.cpp takes for control tokens whatever the file says ("</s>" is an ordinary piece of Qwen's vocabulary).
"""

from collections.abc import Iterable

TEXTS: dict[str, str] = {
    "english": "It's what we've said: they'll come, I'd go, you're not O'Neil's aunt. DON'T SHOUT, WE'LL HEAR YOU.",
    "python": 'def mean(xs: list[float]) -> float:\n    """Average."""\n    return sum(xs) / len(xs)  # NaN if [nan]\n',
    "c": "#include <stdint.h>\nstatic inline uint32_t f(uint32_t *p)\n{\n\treturn p ? p[0] ^ 0xDEADBEEFu : ~0u;\n}\n",
    "shell": 'for f in *.gguf; do\n  [ -e "$f" ] || continue\n  sha256sum -- "${f%.gguf}".{a,b} >>sums 2>&1\ndone\n',
    "json": '{"a":[1,2.5e-3,null,true],"b":{"c\\u00e9":"\\n\\t\\"x\\""},"empty":{},"url":"s3://bucket/key?x=1&y=%20"}',
    "html": '<p class="x">a &lt; b &amp;&amp; c</p><br/><!-- note --><script>if(a<b){c()}</script>',
    "latex": r"\frac{\partial f}{\partial x_i} = \sum_{j=1}^{n} a_{ij} x_j^2 \quad \forall i \in \{1,\ldots,n\}",
    "diff": "@@ -1,3 +1,4 @@\n-old line\n+new line\n+\n context\n\\ No newline at end of file\n",
    "sql": "SELECT t.id, COUNT(*) AS n FROM t LEFT JOIN u ON t.id=u.tid WHERE n>=10 GROUP BY 1 -- top\n;",
    "digits": "0 1 12 123 1234 12345 123456 1234567 00012 3.14159 1,234,567.89 1e-10 0x1F 1/2 50%",
    "dates": "2026-11-30T12:34:56Z 30.11.2026 11/30/26 12:34:56.789 +02:00",
    "digits_in_words": "h264 mp3s 4x4 utf8 x86_64 B2B 7th 1st 2nd v1.2.3-rc4 GPT2 a1b22c333d4444",
    "other_digits": "Arabic ٠١٢٣ ۴۵۶, Devanagari १२३४, Thai ๑๒๓, １２３４",
    "number_like": "roman ⅣⅫ, circled ①②⑳, ½ ¾ x² y³ H₂O",
    "spaces": "a b  c   d    e     f      g       h        i",
    "space_runs": "  two\n   three\n    four\n        eight\n                sixteen\n" + " " * 40 + "forty\n",
    "tabs": "\tone\t\ttwo\t\t\tthree \t mixed\t \t end\t",
    "newlines": "a\nb\n\nc\n\n\nd\n\n\n\n\ne\r\nf\r\n\r\ng\rh\n\r\n",
    "spaces_before_newline": "a \nb  \n\n c \t\n\td   \n   \n   e",
    "trailing_space": "ends with spaces   ",
    "trailing_newline": "ends with newlines\n\n",
    "only_spaces": "     ",
    "only_newline": "\n",
    "unicode_spaces": "a\u00a0b\u2002c\u2003d\u2009e\u202ff\u3000g\u200bh\ufeffi\u2028j\u2029k\u0085l",
    "control": "a\x01b\x02\x07\x08c\x0bd\x0ce\x1bf[31mred\x1b[0m\x7fg\x80h\x9fi",
    "punctuation": "!!! ... ??? --- ***bold*** __init__ `code` ~~~ ::: ;;; ((())) [[]] {{}} <<>> @@ ## $$ %% ^^ && ||",
    "quotes": "“smart” ‘single’ «guillemets» „low“ ‹x› — dash – en … ellipsis • bullet · dot",
    "urls": "https://user:pw@example.org:8080/a/b.html?q=a+b&c=%E4%BD%A0#frag mailto:a.b+c@d-e.example ftp://[::1]/",
    "paths": r"C:\Users\x\file.txt /usr/lib/x86_64-linux-gnu/libc.so.6 ../../a ~/.config ./run --flag=value -xvf",
    "camel": "HTTPServer getHTTPResponse XMLHttpRequest iOS macOS eBay snake_case SCREAMING_CASE kebab-case McDonald",
    "german": "Über größere Straßen fährt Jürgens Weißbierlastwagen; Donaudampfschifffahrtsgesellschaft, GROSS, ẞ.",
    "french": "L’été, où l’œuvre naïve coûte 12 € : « ça va ? » — Où est Noël, garçon ?",
    "spanish": "¿Dónde está el niño? ¡Mañana! Pingüino, corazón, español.",
    "polish": "Zażółć gęślą jaźń. Łódź, źdźbło, ćma.",
    "turkish": "İstanbul'da ılık ığdır; IĞDIR, şöyle, çağ.",
    "vietnamese": "Tiếng Việt có nhiều dấu: phở, đường, nghĩa, người.",
    "russian": "Съешь ещё этих мягких французских булок, да выпей чаю. ЁЖ, объём 5 м³.",
    "ukrainian": "Їхній ґанок і п'ять яблук.",
    "greek": "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία· ΣΊΣΥΦΟΣ, σίσυφος.",
    "chinese": "你好，世界！今天是2026年11月30日，天气晴朗。《三体》第一部——“黑暗森林”……共3册，￥99.5元。",
    "chinese_traditional": "臺灣與香港的繁體字：龍、鑰匙、憂鬱的臺灣烏龜。",
    "chinese_rare": "𠮷野家、𡨸喃、㐀㐁、龘靐齉",
    "japanese": "吾輩は猫である。名前はまだ無い。カタカナ、ひらがな、ﾊﾝｶｸ、ー長音、々、〆切、〒123-4567",
    "korean": "안녕하세요, 세계! 훈민정음은 1443년에 만들어졌다. ㅋㅋㅋ ㅠㅠ",
    "hindi": "नमस्ते दुनिया! क्षत्रिय, ज्ञान, श्री, हिन्दी में ॐ।",
    "bengali": "বাংলা ভাষা, স্বাধীনতা, ক্ষমা।",
    "tamil": "தமிழ் மொழி, க்ஷ, ஸ்ரீ.",
    "thai": "สวัสดีชาวโลก ภาษาไทยไม่มีช่องว่างระหว่างคำ น้ำ ก็",
    "burmese": "မြန်မာဘာသာ",
    "khmer": "ភាសាខ្មែរ",
    "georgian": "ქართული ენა, საქართველო.",
    "armenian": "Հայերեն լեզու, և։",
    "amharic": "ሰላም ልዑል፡ አማርኛ።",
    "arabic": "مرحبا بالعالم! السَّلامُ عَلَيْكُمْ، ١٢٣؟ لا إله",
    "persian": "می‌خواهم نمی‌دانم، ۴۵۶؛ پ چ ژ گ",
    "urdu": "اردو زبان، ہے ٹھیک ڈھول۔",
    "hebrew": "שָׁלוֹם עוֹלָם! עברית, מס' 5 ₪.",
    "bidi": "abc \u202bעברית\u202c def \u200fعربي\u200e 123 \u2067x\u2069",
    "combining": "e\u0301 a\u0308 n\u0303 o\u0302\u0301 Z\u0351\u036b\u0343a\u0321\u031dl\u030d\u030cg \u0301alone",
    "composed": "é ä ñ ố ǆ ﬁ ﬀ Å Ω",
    "hangul_jamo": "\u1112\u1161\u11ab\u1100\u1173\u11af",
    "emoji": "😀😃🎉🚀 ❤️ ☺️ ✌🏽 👍🏿 ⚡ ⭐️ ✅ ❌ ➡️ ©️ ™️ 🫠🥹",
    "emoji_zwj": "👩‍💻 👨‍👩‍👧‍👦 🏳️‍🌈 🏴‍☠️ 🧑🏽‍🚀 ❤️‍🔥 👁️‍🗨️",
    "emoji_flags": "🇩🇪🇯🇵🇺🇸 🏴󠁧󠁢󠁥󠁮󠁧󠁿 #️⃣ 1️⃣ *️⃣",
    "emoji_in_text": "great😀work 🎉!!🎉 ok👍🏽,yes",
    "mathematics": "∀x∈ℝ: ⌈x⌉ ≥ x, ∑ᵢ aᵢ², ∫₀^∞ e⁻ˣ dx = 1, A⊆B, p∧¬q ⇒ r, α→β, ‖v‖₂, 𝔸𝕏 𝐛𝐨𝐥𝐝 𝒸𝓊𝓇",
    "symbols": "→ ← ↑ ↓ ⇔ ■ □ ▲ ● ○ ★ ☆ ♠ ♥ ♪ § ¶ † ‡ № ℃ ° µ Ω € £ ¥ ₹ ₿ ¢",
    "box": "┌──┬──┐\n│ a│ b│\n├──┼──┤\n└──┴──┘ ▁▂▃▄▅▆▇█ ░▒▓",
    "braille": "⠃⠗⠁⠊⠇⠇⠑ 𝄞 🀄 🂡 ♟",
    "runic": "ᚠᚢᚦᚨᚱᚲ 𐍈 𓂀 𒀭 ᏣᎳᎩ ᐃᓄᒃᑎᑐᑦ",
    "replacement": "a\ufffdb \ufffe \U000f0000 \U0010fffd \ue000",
    "soft_hyphen": "co\u00adop\u2011er\u2060ate",
    "long_word": "pneumonoultramicroscopicsilicovolcanoconiosis" + "a" * 70 + "ZZZZ" * 10,
    "long_digits": "3141592653589793238462643383279502884197169399375105820974944592307816406286208998628034",
    "base64": "TWFueSBoYW5kcyBtYWtlIGxpZ2h0IHdvcmsu/+8x0Zk9PQ==",
    "almost_special": "<|not_a_token|> <|im_start <| |> < |im_end| > </s <s [INST] <<SYS>> <think/> <|endoftext|",
    "chat": "system\nYou are helpful.\nuser\nWhy?\nassistant\n",
    "empty": "",
}
"""Name -> text. The engine's context is not involved: texts are only tokenized."""


def corpus(special: Iterable[str]) -> dict[str, str]:
    """`TEXTS` and, for each string of a special or added token, texts around it."""
    texts = dict(TEXTS)
    tokens = list(special)
    for token in tokens:
        texts[f"special {token}"] = token
        texts[f"special inside {token}"] = f"a{token}b 1{token}2\n{token}\n {token} {token}{token}é"
    texts["specials in a row"] = "".join(tokens)
    texts["specials with spaces"] = " ".join(tokens)
    return texts

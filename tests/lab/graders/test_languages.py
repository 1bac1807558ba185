from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odar.lab.graders.ifeval import count_sentences, language

TEXTS = {
    "en": "This is the way that we have been going for a long time, and it will be all right.",
    "de": "Das ist der Weg, den wir gehen, und es wird nicht leicht für die anderen sein.",
    "fr": "C'est le chemin que nous avons pris pour les vacances, mais il est très long.",
    "es": "Este es el camino que tomamos para las vacaciones, pero no es muy largo.",
    "pt": "Este é o caminho que tomamos para as férias, mas não é muito longo e também não é feio.",
    "it": "Questa è la strada che abbiamo preso per le vacanze, ma non è molto lunga.",
    "fi": "Tämä on se tie, jonka olemme valinneet, mutta se ei ole niin pitkä kuin luulimme.",
    "sw": "Hii ni njia ya kwenda katika mji wetu na watu wengi huja hapa kila siku kwa kazi.",
    "vi": "Đây là con đường mà chúng tôi đã chọn cho kỳ nghỉ và không có nhiều người.",
    "ru": "Это дорога, которую мы выбрали для отпуска, но она не такая длинная, как мы думали.",
    "bg": "Това е пътят, който избрахме за почивката, но не е толкова дълъг и ще се върнем.",
    "ar": "هذا هو الطريق الذي اخترناه من أجل العطلة في هذه السنة وهو طويل على كل حال",
    "fa": "این راهی است که ما برای تعطیلات انتخاب کردیم و از آن خیلی راضی هستیم",
    "ur": "یہ وہ راستہ ہے جو ہم نے چھٹیوں کے لیے چنا ہے اور یہ بہت لمبا نہیں ہے",
    "hi": "यह वह रास्ता है जो हमने छुट्टियों के लिए चुना है और यह बहुत लंबा नहीं है",
    "mr": "हा रस्ता आम्ही सुट्टीसाठी निवडला आहे आणि तो खूप लांब नाही, पण तो चांगला आहे",
    "ne": "यो बाटो हामीले छुट्टीको लागि छानेका हौं र यो धेरै लामो छैन, तर राम्रो छ",
    "ko": "이것은 우리가 휴가를 위해 선택한 길입니다.",
    "ja": "これは私たちが休暇のために選んだ道です。",
    "zh": "这是我们为假期选择的路。",
    "th": "นี่คือเส้นทางที่เราเลือกสำหรับวันหยุด",
    "bn": "এই পথটি আমরা ছুটির জন্য বেছে নিয়েছি",
    "gu": "આ રસ્તો અમે રજાઓ માટે પસંદ કર્યો છે",
    "pa": "ਇਹ ਉਹ ਰਸਤਾ ਹੈ ਜੋ ਅਸੀਂ ਚੁਣਿਆ ਹੈ",
    "ta": "இது நாங்கள் தேர்ந்தெடுத்த பாதை",
    "te": "ఇది మేము ఎంచుకున్న మార్గం",
    "kn": "ಇದು ನಾವು ಆರಿಸಿದ ದಾರಿ",
}


@pytest.mark.parametrize("code", TEXTS)
def test_every_language_of_ifeval_is_recognised(code):
    assert language(TEXTS[code]) == code


def test_capitals_mixed_and_empty_texts():
    assert language(TEXTS["en"].upper()) == "en"
    assert language("यह API के बारे में है और यह बहुत आसान है") == "hi"
    assert language("123 !?") is None


@given(st.text(max_size=200))
def test_only_a_text_without_letters_has_no_language(text):
    assert (language(text) is None) == (
        not any(char.isalpha() for char in __import__("unicodedata").normalize("NFC", text))
    )


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 0),
        ("One", 1),
        ("One. Two. Three.", 3),
        ("Dr. Smith and Mr. Jones came at 5 p.m. today.", 1),
        ('Really?! Yes. "So it is." He left.', 4),
        ("It cost 3.50 dollars. Nobody paid.", 2),
        ("See e.g. the first case.", 1),
        ("1. Wash it.\n2. Dry it.", 2),
        ("No mark at the end", 1),
        ("Wait... what is this?", 1),
    ],
)
def test_sentences(text, count):
    assert count_sentences(text) == count

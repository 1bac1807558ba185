"""One or two rows of every dataset, in the schema the hub publishes, with a right and a wrong response to the first."""

from __future__ import annotations

import base64
from typing import Any, NamedTuple

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 16
JPEG = b"\xff\xd8\xff\xe0" + b"\0" * 16
PICTURE = {"bytes": PNG, "path": None}


class Sample(NamedTuple):
    """Files of a hub snapshot and the expected task."""

    files: dict[str, list[dict[str, Any]]]
    right: str
    wrong: str
    asked: str
    """Part of the first query."""
    tasks: int = 1
    images: int = 0


ARC_CHOICES = {"text": ["gas", "liquid", "solid", "plasma"], "label": ["1", "2", "3", "4"]}
LIVE = {"category": "language", "task": "typos", "turns": ["Fix it: thier dog"], "ground_truth": "their dog"}
SAMPLES: dict[str, Sample] = {
    "math": Sample(
        {
            "algebra/test/0000.parquet": [
                {
                    "problem": "What is $1/2 + 1/4$?",
                    "level": "Level 1",
                    "type": "Algebra",
                    "solution": "It is $\\boxed{\\frac{3}{4}}$.",
                }
            ],
            "geometry/test/0000.parquet": [
                {"problem": "Angle?", "level": "Level 2", "type": "Geometry", "solution": "$\\boxed{90^\\circ}$"}
            ],
        },
        "0.75",
        "4/3",
        "$1/2 + 1/4$",
        tasks=2,
    ),
    "gsm8k": Sample(
        {"main/test/0000.parquet": [{"question": "How many eggs?", "answer": "16 - 7 = <<16-7=9>>9\n9 * 2 = 18\n#### 1,800"}]},
        "$1800",
        "9",
        "How many eggs?",
    ),
    "imo_2025": Sample(
        {
            "default/train/0000.parquet": [
                {
                    "problem_idx": "1",
                    "problem": "Find all $k$.",
                    "points": 7,
                    "grading_scheme": [
                        {"desc": "Treats small n", "points": 3, "title": "Base"},
                        {"desc": "Reduces n", "points": 4, "title": "Step"},
                    ],
                }
            ]
        },
        "a proof",
        "",
        "Give a complete proof.",
    ),
    "mathvista": Sample(
        {
            "default/testmini/0000.parquet": [
                {
                    "pid": "1", "question": "Find x.", "image": "images/1.jpg", "decoded_image": PICTURE, "choices": None,
                    "unit": None, "precision": 1.0, "answer": "1.2", "question_type": "free_form", "answer_type": "float",
                    "query": "", "metadata": {"task": "geometry problem solving", "grade": "high school"},
                },
                {
                    "pid": "2", "question": "Which?", "image": "images/2.jpg", "decoded_image": {"bytes": JPEG, "path": None},
                    "choices": ["45", "60"], "unit": None, "precision": None, "answer": "60",
                    "question_type": "multi_choice", "answer_type": "text", "query": "",
                    "metadata": {"task": "geometry problem solving", "grade": "high school"},
                },
            ]
        },
        "1.24",
        "1.3",
        "a number with 1 decimal places",
        tasks=2,
        images=1,
    ),
    "arc_challenge": Sample(
        {
            "ARC-Challenge/test/0000.parquet": [
                {"id": "Q1", "question": "Ice is a", "choices": ARC_CHOICES, "answerKey": "3"}
            ]
        },
        "C",
        "3",  # the row's own name of the key is not what was shown
        "C. solid",
    ),
    "openbookqa": Sample(
        {
            "main/test/0000.parquet": [
                {
                    "id": "8-376",
                    "question_stem": "Ice is a",
                    "choices": {"text": ["gas", "solid"], "label": ["A", "B"]},
                    "answerKey": "B",
                }
            ]
        },
        "solid",
        "A",
        "B. solid",
    ),
    "boolq": Sample(
        {
            "default/validation/0000.parquet": [
                {"question": "does ethanol take more energy", "passage": "All biomass goes…", "answer": False}
            ]
        },
        "No.",
        "Yes",
        "does ethanol take more energy?",
    ),
    "strategyqa": Sample(
        {
            "default/train/0000.parquet": [
                {"qid": "a", "term": "t", "description": "d", "question": "Can it?", "answer": True, "facts": "It can."}
            ],
            "default/test/0000.parquet": [
                {"qid": "b", "term": "t", "description": "d", "question": "Could it?", "answer": False, "facts": "No."}
            ],
        },
        "yes",
        "no",
        "Can it?",
        tasks=2,
    ),
    "mmlu_pro": Sample(
        {
            "default/test/0000.parquet": [
                {
                    "question_id": 70, "question": "Typical?", "options": ["a", "b", "c"], "answer": "C", "answer_index": 2,
                    "cot_content": "", "category": "business", "src": "ori_mmlu-business_ethics",
                }
            ]
        },
        "(C)",
        "B",
        "C. c",
    ),
    "gpqa": Sample(
        {
            "gpqa_main.csv": [
                {
                    "Record ID": "rec06", "Question": "Which decays?", "Correct Answer": "the muon\n",
                    "Incorrect Answer 1": "the proton", "Incorrect Answer 2": "the photon",
                    "Incorrect Answer 3": "the electron", "High-level domain": "Physics", "Subdomain": "Particle physics",
                    "Self-reported time (minutes)_EV_1": "30.0", "Self-reported time (minutes)_EV_2": "",
                }
            ]
        },
        "the muon",
        "the proton",
        "the photon",
    ),
    "hotpotqa": Sample(
        {
            "distractor/validation/0000.parquet": [
                {
                    "id": "5a8b", "question": "Where?", "answer": "Greenwich Village", "type": "bridge", "level": "hard",
                    "supporting_facts": {"title": ["A"], "sent_id": [0]},
                    "context": {"title": ["A", "B"], "sentences": [["One. ", "Two."], ["Three."]]},
                }
            ]
        },
        "greenwich village",
        "Harlem",
        "A\nOne. Two.",
    ),
    "musique": Sample(
        {
            "musique_ans_v1.0_dev.jsonl": [
                {
                    "id": "2hop__1", "question": "Who?", "answer": "Miquette Giraudy", "answer_aliases": ["Giraudy"],
                    "answerable": True, "paragraphs": [
                        {"idx": 0, "title": "Green", "paragraph_text": "An album.", "is_supporting": True}
                    ],
                    "question_decomposition": [{"id": 1}, {"id": 2}],
                }
            ]
        },
        "Giraudy",
        "Hillage",
        "Green\nAn album.",
    ),
    "scienceqa": Sample(
        {
            "default/test/0000.parquet": [
                {
                    "image": PICTURE, "question": "Which state?", "choices": ["Ohio", "Maine"], "answer": 1,
                    "hint": "Look at the map.", "task": "closed choice", "grade": "grade2", "subject": "social science",
                    "topic": "geography", "category": "Geography", "skill": "", "lecture": "SECRET", "solution": "To find it",
                },
                {
                    "image": None, "question": "Which?", "choices": ["a", "b"], "answer": 0, "hint": "", "task": "t",
                    "grade": "grade3", "subject": "s", "topic": "", "category": "", "skill": "", "lecture": "", "solution": "",
                },
            ]
        },
        "B",
        "A",
        "Look at the map.\n\nWhich state?",
        tasks=2,
        images=1,
    ),
    "aokvqa": Sample(
        {
            "default/validation/0000.parquet": [
                {
                    "image": PICTURE, "question_id": "22jb", "question": "What is in his hand?", "choices": ["bag", "cup"],
                    "correct_choice_idx": 0, "direct_answers": "['bag']", "difficult_direct_answer": False, "rationales": ["r"],
                }
            ]
        },
        "bag",
        "cup",
        "A. bag",
        images=1,
    ),
    "mmmu_pro": Sample(
        {
            "standard (10 options)/test/0000.parquet": [
                {
                    "id": "test_1", "question": "Compare <image 2> with <image 3>.", "options": "['x', \"it's y\"]",
                    "explanation": "", "image_1": None, "image_2": PICTURE, "image_3": {"bytes": JPEG, "path": None},
                    "img_type": "[]", "answer": "B", "topic_difficulty": "Easy", "subject": "Art",
                }
            ]
        },
        "B. it's y",
        "A",
        "Compare <image 1> with <image 2>.",  # numbered as they are sent
        images=2,
    ),
    "bbh": Sample(
        {
            "boolean_expressions/test/0000.parquet": [{"input": "not True is", "target": "False"}],
            "navigate/test/0000.parquet": [{"input": "Do you return?", "target": "Yes"}],
        },
        "False",
        "True",
        "not True is",
        tasks=2,
    ),
    "bbeh": Sample(
        {
            "default/train/0000.parquet": [
                {"task": "spatial_reasoning", "input": "Where is it?", "target": "(C)", "mini": 1},
                {"task": "nycc", "input": "Which is funny?", "target": "(A)", "mini": 0},
            ]
        },
        "c",
        "(D)",
        "Where is it?",
        tasks=2,
    ),
    "truthfulqa": Sample(
        {
            "multiple_choice/validation/0000.parquet": [
                {
                    "question": "What if?",
                    "mc1_targets": {"choices": ["Nothing happens", "You die"], "labels": [1, 0]},
                    "mc2_targets": {"choices": ["Nothing happens", "You die"], "labels": [1, 0]},
                }
            ]
        },
        "Nothing happens",
        "You die",
        "You die",
    ),
    "truthfulqa_text": Sample(
        {
            "generation/validation/0000.parquet": [
                {
                    "question": "What if?",
                    "category": "Misconceptions",
                    "best_answer": "Nothing happens",
                    "correct_answers": ["Nothing happens", "It passes through you"],
                    "incorrect_answers": ["You die", "You get sick"],
                }
            ]
        },
        "It just passes through you",
        "You get very sick",
        "What if?",
    ),
    "hle": Sample(
        {
            "data/test-00000-of-00001.parquet": [
                {
                    "id": "668", "question": "Which one?\n\nAnswer Choices:\nA. x\nB. y", "answer": "B",
                    "image": "data:image/png;base64," + base64.b64encode(PNG).decode(), "answer_type": "multipleChoice",
                    "rationale": "r", "raw_subject": "Chess", "category": "Other", "canary": "c",
                },
                {
                    "id": "669", "question": "How many?", "answer": "\\frac{1}{2}", "image": "", "answer_type": "exactMatch",
                    "rationale": "r", "raw_subject": "Math", "category": "Math", "canary": "c",
                },
            ]
        },
        "B",
        "A",
        "B. y",
        tasks=2,
        images=1,
    ),
    "swe_bench": Sample(
        {
            "default/test/0000.parquet": [
                {
                    "instance_id": "astropy__astropy-12907", "text": "You will be provided with an issue.", "patch": "p",
                    "repo": "astropy/astropy", "base_commit": "d16b", "problem_statement": "It fails.", "test_patch": "t",
                }
            ]
        },
        "",
        "",
        "an issue",
    ),
    "livebench": Sample(
        {
            "language/default/test/0000.parquet": [{"question_id": "l1", **LIVE}],
        },
        "their dog",
        "thier dog",
        "Fix it",
    ),
    "ifeval": Sample(
        {
            "default/train/0000.parquet": [
                {
                    "key": 1000, "prompt": "Write a lot. No commas.",
                    "instruction_id_list": ["punctuation:no_comma", "length_constraints:number_words"],
                    "kwargs": [
                        {"num_words": None, "relation": None}, {"num_words": 3, "relation": "at least"},
                    ],
                }
            ]
        },
        "one two three",
        "one, two, three",
        "No commas",
    ),
    "arc_agi_2": Sample(
        {
            "default/test/0000.parquet": [
                {
                    "fewshots": [{"input": [[0, 1]], "output": [[1, 0]]}],
                    "question": [
                        {"input": [[5, 6]], "output": [[6, 5]]},
                        {"input": [[7, 8], [1, 2]], "output": [[8, 7], [2, 1]]},
                    ],
                }
            ]
        },
        "[[6, 5]]",
        "[[5, 6]]",
        "Test input:\n5 6",
        tasks=2,
    ),
}  # fmt: skip

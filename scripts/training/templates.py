"""Prompts as benchmarks and clients wrap a question: instruction, options, answer format, few-shot examples.

The estimator is judged on them: its d should be that of the question alone. They are written after the templates of
public harnesses (MMLU, MMLU-Pro, simple-evals, lm-evaluation-harness, OpenCompass, HELM, ZeroEval, RouterArena).
"""

from __future__ import annotations

LETTERS = "ABCDEFGHIJ"

EXAMPLES = (
    ("Which planet is closest to the sun?", ["Venus", "Mercury", "Mars", "Earth"], "B"),
    ("What is 7 times 8?", ["54", "56", "63", "48"], "B"),
)


def lettered(options: list[str], form: str) -> str:
    """Options one a line, such as "A. red"."""
    return "\n".join(form.format(letter, option) for letter, option in zip(LETTERS, options, strict=False))


def shots(question: str, options: list[str], q: str, form: str, a: str, between: str = "\n\n") -> str:
    """Two worked examples and the question, without its answer."""
    blocks = [f"{q}{text}\n{lettered(choices, form)}\n{a} {answer}" for text, choices, answer in EXAMPLES]
    return between.join([*blocks, f"{q}{question}\n{lettered(options, form)}\n{a}"])


def multiple_choice(question: str, options: list[str], subject: str) -> dict[str, str]:
    """Template to prompt, for a question with options."""
    last = LETTERS[len(options) - 1]
    json_form = '```json\n{\n    "reasoning": "___",\n    "answer": "___"\n}\n```'
    return {
        "mmlu": f"The following are multiple choice questions (with answers) about {subject}.\n\n"
        f"{question}\n{lettered(options, '{}. {}')}\nAnswer:",
        "mmlu, few-shot": f"The following are multiple choice questions (with answers) about {subject}.\n\n"
        + shots(question, options, "", "{}. {}", "Answer:"),
        "mmlu-pro, few-shot": f"The following are multiple choice questions (with answers) about {subject}. Think step by "
        'step and then finish your answer with "the answer is (X)" where X is the correct letter choice.\n\n'
        + shots(question, options, "Question:\n", "{}. {}", "Answer: Let's think step by step."),
        "simple-evals": "Answer the following multiple choice question. The last line of your response should be of the "
        f"following format: 'Answer: $LETTER' (without quotes) where LETTER is one of {LETTERS[: len(options)]}. Think step "
        f"by step before answering.\n\n{question}\n\n{lettered(options, '{}) {}')}",
        "opencompass": f"There is a single choice question about {subject}. Answer the question by replying A, B, C or D.\n"
        f"Question: {question}\n{lettered(options, '{}. {}')}\nAnswer: ",
        "helm": f"Answer with only a single letter.\n\n{question}\n{lettered(options, '{}. {}')}",
        "zeroeval": f"## Question: \n\n{question}\n\n## Choices: \n\n{lettered(options, '- ({}) {}')}\n\n## Instruction \n\n"
        "Please answer this question by first reasoning and then selecting the correct choice. \nPresent your reasoning and "
        f"solution in the following json format. \nPlease show your choice in the `answer` field with only the choice letter, "
        f'e.g.,`"answer": "C"`.\n\n{json_form}',
        "routerarena": "Please read the following multiple-choice questions and provide the most likely correct answer based on "
        f"the options given.\n\nContext: None\n\nQuestion: {question}\n\nOptions: \n{lettered(options, '{}. {}')}\n\nProvide the "
        "correct letter choice in \\boxed{X}, where X is the correct letter choice. Keep the explanation or feedback within 3 "
        "sentences.",
        "role": f"You are an expert in {subject}. Choose the best option for the question below and explain briefly.\n\n"
        f"{question}\n\nChoices:\n{lettered(options, '({}) {}')}\n\nYour final answer must be a letter from A to {last}.",
    }


def open_answer(question: str) -> dict[str, str]:
    """Template to prompt, for a question without options."""
    return {
        "boxed": f"{question}\nPlease reason step by step, and put your final answer within \\boxed{{}}.",
        "simple-evals": "Solve the following math problem step by step. The last line of your response should be of the form "
        "Answer: $ANSWER (without quotes) where $ANSWER is the answer to the problem.\n\n"
        f'{question}\n\nRemember to put your answer on its own line after "Answer:", and you do not need to use a \\boxed command.',
        "minerva, few-shot": "Problem:\nWhat is 3 + 4?\n\nSolution:\n3 + 4 = 7. Final Answer: The final answer is $7$. I hope it is "
        f"correct.\n\nProblem:\n{question}\n\nSolution:",
        "question and answer": f"Question: {question}\nAnswer:",
        "zeroeval": f"## Problem: \n\n{question}\n\n## Instruction\n\nPlease reason about this problem first, then provide the final "
        'answer. \nPresent your reasoning and solution in the following json format. \n\n```json\n{\n    "reasoning": "___",\n'
        '    "answer": "___"\n}\n```',
        "routerarena": "Please answer the following question. Your response should include the reasoning and the final answer.\n\n"
        f"Context: None\n\nQuestion: {question}\n\nProvide the final answer in \\boxed{{X}}.",
    }


def held_out(question: str, options: list[str], subject: str) -> dict[str, str]:
    """Templates that were written after the rules of `odar.question`, which were not changed for them."""
    return {
        "gpqa": f"What is the correct answer to this question: {question}\n\nChoices:\n{lettered(options, '({}) {}')}\n\n"
        'Format your response as follows: "The correct answer is (insert answer here)"',
        "arc": f"Question: {question}\n{lettered(options, '{}. {}')}\nAnswer:",
        "openai-evals": "You will be given a question and answer choices. Pick the letter of the right answer and say nothing "
        f"else.\n\nQ: {question}\n\nChoices:\n{lettered(options, '{}) {}')}\n\nA:",
        "llama-3": "Given the following question and candidate answers, choose the best answer.\n"
        f"Question: {question}\n{lettered(options, '{}. {}')}\n"
        'Your response should end with "The best answer is [the_answer_letter]" where the [the_answer_letter] is a letter.',
        "exam": f"This is a question from an exam in {subject}.\n### Question\n{question}\n### Options\n"
        f"{lettered(options, '{}: {}')}\n### Your choice",
        "dspy": "Your input fields are:\n1. `question` (str)\nYour output fields are:\n1. `answer` (str)\nAll interactions will be "
        f"structured in the following way.\n\n[[ ## question ## ]]\n{question}\n{lettered(options, '{}. {}')}\n\n[[ ## answer ## ]]",
        "inline": f"{subject.capitalize()}: {question} {' '.join(lettered(options, '({}) {}').splitlines())} "
        "Which option is right? Justify your choice in one sentence.",
        "xml": "<instructions>\nPick one option. Give its letter in <answer> tags.\n</instructions>\n"
        f"<question>\n{question}\n</question>\n<options>\n{lettered(options, '{}. {}')}\n</options>",
    }

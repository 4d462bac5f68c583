"""What the model is told before it thinks: the authors' words, to the last space."""

THINK_THEN_PAINT = (
    "You should first think about the planning process in the mind and then generate the image. \n"
    "The planning process is enclosed within <think> </think> tags, i.e. <think> planning process here "
    "</think> image here"
)
THINK_THEN_WRITE = (
    "You should first think about the reasoning process in the mind and then provide the user with the "
    "answer. \n"
    "The reasoning process is enclosed within <think> </think> tags, i.e. <think> reasoning process here "
    "</think> answer here"
)

class Answers:
    pass

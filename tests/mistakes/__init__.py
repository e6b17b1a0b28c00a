"""Programs with one mistake each, by family, and what refdist says of them: `tests/test_mistakes.py`.

A program is a function.  Each table has, by the number of its kind (0 for one that is of no kind in the list of kinds
that users have reported), the program and its verdict:

    raises RD06           an error with this code, or of this class
    warns RD38            a remark with this code, the checks `types` and `watch` being on
    compare ONE SEED      nothing of these, but `refdist.compare` says this cause
    missed                nothing: the number is wrong, and nobody says so

The line that is named has the comment `here`, where one is named and the program has it.
"""

from federatedscope_ggeur.reporting.tables import text_table


def test_blocks_share_the_widths_of_their_columns():
    lines = text_table([["", "up"]], [["a round", "7"], ["all", "700 kB"]], ruled=True)
    assert lines == [
        "             up",
        "---------------",
        "a round       7",
        "all      700 kB",
        "---------------",
    ]


def test_the_columns_that_stand_left():
    assert text_table([["n", "name"], ["10", "a"]], left=[1]) == [" n  name", "10  a"]


def test_no_rows_are_no_lines():
    assert text_table([]) == []

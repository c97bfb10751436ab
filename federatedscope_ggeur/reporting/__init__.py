"""The results of a run: their schema, their files, the table and the curve."""

from .lines import (
    average,
    divergence_line,
    numbers_of_rows,
    privacy_line,
    record_lines,
    screening_lines,
    summarise,
)
from .provenance import Capture, DataFingerprint, Origin, Provenance
from .records import (
    AbsentClasses,
    Chosen,
    ClientInfo,
    DifferentialPrivacy,
    Divergence,
    Final,
    Finding,
    Kept,
    NoiseRecord,
    PersonalRecord,
    PooledRows,
    Privacy,
    Probabilities,
    ProbabilityScores,
    Round0,
    RoundRecord,
    Screening,
    SharedScores,
    SumsRecord,
    TemperatureScaling,
    WorstClient,
)
from .results import SCHEMA_VERSION, Results, metrics_csv, numbers, results_table
from .run import (
    ELSEWHERE,
    cut_off,
    new_run_folder,
    obstacle,
    own_file,
    read_results,
    write_left,
    write_run,
)
from .run_files import HEAD_FILE, OWN_FOLDER, RESULTS_FILE

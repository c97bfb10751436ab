"""The results of a run: their schema, their files, the table and the curve."""

from federatedscope_ggeur.reporting.lines import (
    divergence_line,
    privacy_line,
    record_lines,
    screening_lines,
)
from federatedscope_ggeur.reporting.model_owners import numbers_of_rows
from federatedscope_ggeur.reporting.provenance import (
    Capture,
    DataFingerprint,
    Origin,
    Provenance,
)
from federatedscope_ggeur.reporting.records import (
    Chosen,
    ClientCompression,
    ClientInfo,
    CompressionRecord,
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
from federatedscope_ggeur.reporting.results import (
    SCHEMA_VERSION,
    Results,
    metrics_csv,
    numbers,
    results_table,
)
from federatedscope_ggeur.reporting.run import (
    ELSEWHERE,
    new_run_folder,
    obstacle,
    own_file,
    read_results,
    write_left,
    write_run,
)
from federatedscope_ggeur.reporting.run_files import (
    HEAD_FILE,
    OWN_FOLDER,
    RESULTS_FILE,
    STRANGENESS_FILE,
)
from federatedscope_ggeur.reporting.summary import average, summarise
from federatedscope_ggeur.reporting.tracking import (
    Tracking,
    TrackingSettings,
    missing_package,
)

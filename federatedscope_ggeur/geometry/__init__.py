"""Pure maths on tensors: class statistics, shapes, augmentation, spaces."""

from .augmentation import (
    AugmentationSettings,
    AugmentedSet,
    PerAnchorSizes,
    ReleaseSizes,
    Sizes,
    TotalSizes,
    augment,
)
from .compressed import CompressedStatistics, Compression
from .scatter import ROW_DTYPES, RoundedRows, thin_factor
from .shape import GeometricShape, shape_similarity
from .spaces import SPACES, Space
from .statistics import (
    LARGEST_EMBEDDING,
    ClassStatistics,
    MissingScatterError,
    Statistics,
    Totals,
    varying,
)

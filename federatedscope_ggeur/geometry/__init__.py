"""Pure maths on tensors: class statistics, shapes, augmentation, spaces."""

from .augmentation import AugmentationSettings, AugmentedSet, augment
from .compressed import CompressedStatistics, Compression, CompressionLoss
from .rounded_rows import ROW_DTYPES, RoundedRows
from .scatter import thin_factor
from .shape import GeometricShape, shape_similarity
from .sizes import PerAnchorSizes, ReleaseSizes, Sizes, TotalSizes
from .spaces import SPACES, Space, SpaceSettings
from .statistics import LARGEST_EMBEDDING, ClassStatistics, Statistics
from .totals import Totals, varying

"""What client and server say to each other, as bytes that are checked before use."""

from federatedscope_ggeur.federation.messages.handshake import Handshake, Join
from federatedscope_ggeur.federation.messages.leave_one_out import (
    HitCounts,
    LeaveOneOut,
)
from federatedscope_ggeur.federation.messages.payloads import (
    Broadcast,
    ClientUpdate,
    Geometry,
    InitBroadcast,
    PrepareReply,
    Prototypes,
    ScoreReport,
)
from federatedscope_ggeur.federation.messages.schema import (
    MessageSchema,
    StatisticsForm,
)
from federatedscope_ggeur.federation.messages.space import (
    SpaceBroadcast,
    TotalsUpload,
)
from federatedscope_ggeur.federation.messages.statistics_upload import StatisticsUpload

"""What a DFlash draft computes: the reference forward of both generations, its cache, trace and selector."""

from draftmill.dflash.forward.attention import WindowRule
from draftmill.dflash.forward.context import KvCache
from draftmill.dflash.forward.draft import Draft
from draftmill.dflash.forward.products import Gemm
from draftmill.dflash.forward.trace import Trace

__all__ = ["Draft", "Gemm", "KvCache", "Trace", "WindowRule"]

"""Models for places without this package: ONNX files, and modules for `torch.export`."""

from dkvb.export.check import Parity, check_onnx
from dkvb.export.module import as_module
from dkvb.export.onnx_file import ExportReport, export_onnx

__all__ = ["ExportReport", "Parity", "as_module", "check_onnx", "export_onnx"]

"""`quarl audit`: the verdicts of a file, and the returns that it holds."""

import json

from quarl_bench.report.documents import read_document
from tests.support.pages import DOCS

STORED = DOCS / "results" / "nightly.json.xz"


def test_quarl_audit_judges_a_file_again(quarl, tmp_path):
    document = read_document(STORED)
    row = next(row for row in document.rows if row.returns is not None)
    data = {"schema_version": document.data["schema_version"], "rows": [row.as_dict()]}
    path = tmp_path / "results.json"
    path.write_text(json.dumps(data))
    assert quarl("audit", str(path))[:2] == (
        0,
        "1 verdicts follow from their returns, 0 do not, 0 rows hold no returns\n",
    )
    data["rows"][0] |= {"verdict": "partial"}
    path.write_text(json.dumps(data))
    code, told, _ = quarl("audit", str(path))
    assert (code, told.startswith(f"{row.claim} {row.id}: stored partial")) == (1, True)
    data["rows"][0]["returns"] = {"measured": {}}
    path.write_text(json.dumps(data))
    code, told, error = quarl("audit", str(path))
    assert (code, told) == (2, "")
    assert error.startswith(f"quarl audit: row {row.id} of {row.claim}: returns are ill-formed")

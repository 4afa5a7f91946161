"""Images in shards whose resolution is a choice of the reader: progressive records.

A progressive JPEG is a ladder of scans, each a finer picture of the whole. A shard keeps the first
scans of all its images together, then the next: who needs less detail reads less, in one sequential
read, and gets JPEGs that any decoder opens. All groups together are the pixels of the original.

    >>> from ettr.records import open_records, samples_of_folder, write_records
    >>> written = write_records(samples_of_folder("photos"), "packed")      # doctest: +SKIP
    >>> records = open_records("packed")                                    # doctest: +SKIP
    >>> for record in records.stream(fidelity=2):                           # doctest: +SKIP
    ...     image = decode(record.jpeg)

Worth it where bytes are scarce: `gains` says by how much, and where it is a loss.
The idea and its first measurements: Kuchnik et al., *Progressive Compressed Records*, VLDB 2021.
"""

from ettr.records.shards import (
    Choice,
    Damage,
    Gain,
    ImageForm,
    ImageRecord,
    ImageRecords,
    LossIncrease,
    Sample,
    ShardRead,
    WrittenRecords,
    choose_fidelity,
    gains,
    measure_forms,
    open_records,
    progressive,
    samples_of_folder,
    samples_of_tars,
    scan_ends,
    write_records,
)

__all__ = [
    "Choice",
    "Damage",
    "Gain",
    "ImageForm",
    "ImageRecord",
    "ImageRecords",
    "LossIncrease",
    "Sample",
    "ShardRead",
    "WrittenRecords",
    "choose_fidelity",
    "gains",
    "measure_forms",
    "open_records",
    "progressive",
    "samples_of_folder",
    "samples_of_tars",
    "scan_ends",
    "write_records",
]

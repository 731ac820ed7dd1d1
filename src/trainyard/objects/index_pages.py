"""Pages of the keys of a bucket, from the index."""

from collections.abc import Sequence

from trainyard.foundation.clock import from_micros
from trainyard.objects.contract import Listing, ObjectSummary
from trainyard.objects.database import Database
from trainyard.objects.listing import common_prefix, first_key, key_beyond
from trainyard.objects.rows import read_checksum

# Few objects have a storage class, and searching for the word is far cheaper than parsing the JSON of each.
_STORAGE_CLASS = """
CASE WHEN instr(attributes, 'x-amz-storage-class') THEN json_extract(attributes, '$[0]."x-amz-storage-class"') END
"""
_SUMMARIES = f"SELECT json_group_array(json_array(hex(key), size, etag, modified_at, checksum, {_STORAGE_CLASS})) FROM "

_PAGE = f"""
{_SUMMARIES} (
    SELECT * FROM object WHERE bucket = :bucket AND key >= :start AND key < :end ORDER BY key LIMIT :limit
)
"""

# Steps from key to key and skips the rest of each common prefix, so a page costs one seek for each of its entries.
# `||` converts bytes to text, hence the casts.
_ROLLED_PAGE = f"""
WITH RECURSIVE step (key) AS (
    SELECT * FROM (
        SELECT key FROM object WHERE bucket = :bucket AND key >= :start AND key < :end ORDER BY key LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT key FROM object WHERE bucket = :bucket AND key < :end AND key >= CASE
            WHEN instr(substr(step.key, :skip + 1), :delimiter) = 0 THEN CAST(step.key || x'00' AS BLOB)
            ELSE CAST(
                substr(step.key, 1, :skip + instr(substr(step.key, :skip + 1), :delimiter) - 1) || :beyond AS BLOB
            )
        END ORDER BY key LIMIT 1
    ) FROM step WHERE step.key IS NOT NULL LIMIT :limit
)
{_SUMMARIES} (
    SELECT object.* FROM step CROSS JOIN object ON object.bucket = :bucket AND object.key = step.key
)
"""


def list_objects(database: Database, bucket: int, *, prefix: str, delimiter: str, after: str, limit: int) -> Listing:
    before, cut = prefix.encode(), delimiter.encode()
    parameters: dict[str, object] = {
        "bucket": bucket,
        "start": first_key(before, cut, after=after.encode()),
        "end": key_beyond(before),
        "limit": limit + 1,
    }
    if not cut:
        return _flat_page(database.rows(_PAGE, parameters, read=_summary), limit)
    parameters |= {"skip": len(before), "delimiter": cut, "beyond": key_beyond(cut)}
    found = database.rows(_ROLLED_PAGE, parameters, read=_summary)
    return _rolled_page(found, limit, prefix=before, delimiter=cut)


def _summary(
    key: str, size: int, etag: str, modified_at: int, checksum: str | None, storage_class: str | None
) -> ObjectSummary:
    name, modified = bytes.fromhex(key).decode(), from_micros(modified_at)
    return ObjectSummary(name, size, etag, modified, read_checksum(checksum), storage_class)


def _flat_page(found: Sequence[ObjectSummary], limit: int) -> Listing:
    more = 0 < limit < len(found)
    return Listing(found[:limit], [], found[limit - 1].key if more else None)


def _rolled_page(found: Sequence[ObjectSummary], limit: int, *, prefix: bytes, delimiter: bytes) -> Listing:
    objects, prefixes, last = [], [], ""
    for summary in found[:limit]:
        shared = common_prefix(summary.key.encode(), prefix, delimiter)
        if shared is None:
            last = summary.key
            objects.append(summary)
        else:
            last = shared.decode()
            prefixes.append(last)
    return Listing(objects, prefixes, last if 0 < limit < len(found) else None)

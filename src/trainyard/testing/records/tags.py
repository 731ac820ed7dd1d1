"""Tags are stored under an account and an ARN."""

from trainyard.server.records.contract import Records, TaggedArn
from trainyard.testing.records.samples import ALICE, BOB, NOON, draft, in_threads

BUCKET = "arn:aws:s3:::data"


def job_arn(name: str) -> str:
    return f"arn:aws:sagemaker:eu-central-1:{ALICE}:training-job/{name}"


class TagContract:
    def test_an_arn_without_tags_has_none(self, records: Records) -> None:
        assert records.tags(ALICE, BUCKET) == {}

    def test_tags_given_with_a_draft_are_found_under_its_arn(self, records: Records) -> None:
        records.create(draft("a", arn=job_arn("a"), tags={"team": "vision", "": "empty"}), now=NOON)
        assert records.tags(ALICE, job_arn("a")) == {"team": "vision", "": "empty"}

    def test_tags_are_added_and_replaced_by_key(self, records: Records) -> None:
        records.set_tags(ALICE, BUCKET, {"a": "1", "b": "2"})
        records.set_tags(ALICE, BUCKET, {"b": "3", "c": "Zürich 🚂"})
        assert records.tags(ALICE, BUCKET) == {"a": "1", "b": "3", "c": "Zürich 🚂"}

    def test_the_tags_of_many_arns_are_read_at_once(self, records: Records) -> None:
        records.set_tags(ALICE, job_arn("a"), {"k": "1"})
        records.set_tags(BOB, job_arn("a"), {"k": "2"})
        records.set_tags(ALICE, job_arn("b"), {"k": "3"})
        found = records.tags_of_arns([job_arn("a"), job_arn("none")])
        assert sorted(found, key=lambda each: each.account) == [
            TaggedArn(account, job_arn("a"), {"k": value}) for account, value in sorted({ALICE: "1", BOB: "2"}.items())
        ]
        assert records.tags_of_arns([]) == []

    def test_setting_no_tags_changes_nothing(self, records: Records) -> None:
        records.set_tags(ALICE, BUCKET, {})
        assert records.tagged_arns(None) == []

    def test_tag_keys_are_case_sensitive(self, records: Records) -> None:
        records.set_tags(ALICE, BUCKET, {"Team": "1", "team": "2"})
        assert records.tags(ALICE, BUCKET) == {"Team": "1", "team": "2"}

    def test_accounts_have_separate_tags_on_the_same_arn(self, records: Records) -> None:
        records.set_tags(ALICE, BUCKET, {"a": "alice"})
        records.set_tags(BOB, BUCKET, {"a": "bob"})
        assert records.tags(ALICE, BUCKET) == {"a": "alice"}
        records.remove_tags(BOB, BUCKET, ["a"])
        assert records.tags(ALICE, BUCKET) == {"a": "alice"}

    def test_tags_are_removed_by_key_and_unknown_keys_do_not_matter(self, records: Records) -> None:
        records.set_tags(ALICE, BUCKET, {"a": "1", "b": "2"})
        records.remove_tags(ALICE, BUCKET, ["a", "z"])
        records.remove_tags(ALICE, BUCKET, [])
        assert records.tags(ALICE, BUCKET) == {"b": "2"}

    def test_an_arn_whose_last_tag_is_gone_is_no_longer_listed(self, records: Records) -> None:
        records.set_tags(ALICE, BUCKET, {"a": "1"})
        records.remove_tags(ALICE, BUCKET, ["a"])
        assert records.tagged_arns(ALICE) == []

    def test_tagged_arns_are_listed_in_order_with_their_tags(self, records: Records) -> None:
        records.set_tags(ALICE, job_arn("b"), {"k": "1", "j": "2"})
        records.set_tags(ALICE, job_arn("a"), {"k": "3"})
        assert records.tagged_arns(ALICE) == [
            TaggedArn(ALICE, job_arn("a"), {"k": "3"}),
            TaggedArn(ALICE, job_arn("b"), {"j": "2", "k": "1"}),
        ]

    def test_a_list_of_one_account_shows_no_other(self, records: Records) -> None:
        records.set_tags(ALICE, BUCKET, {"a": "1"})
        records.set_tags(BOB, BUCKET, {"b": "2"})
        assert records.tagged_arns(BOB) == [TaggedArn(BOB, BUCKET, {"b": "2"})]
        assert [one.account for one in records.tagged_arns(None)] == [ALICE, BOB]

    def test_tagged_arns_are_paged(self, records: Records) -> None:
        arns = [job_arn(f"{number:02}") for number in range(9)]
        for arn in arns:
            records.set_tags(ALICE, arn, {"a": "1", "b": "2"})
        read: list[str] = []
        while page := records.tagged_arns(ALICE, after=read[-1] if read else "", limit=4):
            assert len(page) <= 4
            read += [one.arn for one in page]
        assert read == arns

    def test_a_page_of_all_accounts_never_splits_the_owners_of_one_arn(self, records: Records) -> None:
        """The cursor is an ARN, so the second owner of the last ARN would be skipped."""
        for account in (ALICE, BOB):
            records.set_tags(account, BUCKET, {"a": "1"})
        assert [one.account for one in records.tagged_arns(None, limit=1)] == [ALICE, BOB]

    def test_an_arn_matches_any_of_several_prefixes(self, records: Records) -> None:
        wanted = [BUCKET, job_arn("a"), job_arn("ab")]
        for arn in (*wanted, "arn:aws:logs:x", "arn:aws:zzz"):
            records.set_tags(ALICE, arn, {"a": "1"})
        prefixes = [job_arn("a"), "arn:aws:s3:", "arn:aws:s3:::d", job_arn("")]
        for account in (ALICE, None):
            assert [one.arn for one in records.tagged_arns(account, arn_prefixes=prefixes)] == sorted(wanted)
            first = records.tagged_arns(account, arn_prefixes=prefixes, limit=2)
            rest = records.tagged_arns(account, arn_prefixes=prefixes, after=first[-1].arn, limit=2)
            assert [one.arn for one in (*first, *rest)] == sorted(wanted)

    def test_prefixes_are_taken_literally(self, records: Records) -> None:
        records.set_tags(ALICE, "arn:a%b", {"a": "1"})
        records.set_tags(ALICE, "arn:axb", {"a": "1"})
        assert [one.arn for one in records.tagged_arns(ALICE, arn_prefixes=["arn:a%"])] == ["arn:a%b"]

    def test_tags_set_at_once_are_all_stored(self, records: Records) -> None:
        in_threads(8, lambda number: records.set_tags(ALICE, BUCKET, {"same": "x", str(number): "y"}), times=40)
        assert records.tags(ALICE, BUCKET) == {"same": "x"} | {str(number): "y" for number in range(40)}

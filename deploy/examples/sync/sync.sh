#!/bin/sh
# Brings the links up to date with a catalogue: sync.sh TODAY YESTERDAY. Both are files with one operation a line, in the form
# {"op":"upsert","externalId":"sku-1","link":{"path":"/products/1"}}. A product that is only in YESTERDAY loses its link.
# DEEPLINK_API and DEEPLINK_KEY are the address of control and a server key.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ids() { sed 's/.*"externalId":"\([^"]*\)".*/\1/' "$1" | LC_ALL=C sort; }
ids "$1" >"$work/today"
ids "$2" >"$work/yesterday"
{
	cat "$1"
	LC_ALL=C comm -13 "$work/today" "$work/yesterday" | sed 's/.*/{"op":"delete","externalId":"&"}/'
} | split -l 1000 - "$work/part-"
for part in "$work"/part-*; do
	{ printf '{"operations":['; paste -sd, "$part"; printf ']}'; } >"$work/body"
	# The key is that of this content on this day: a run that is repeated after a failure changes nothing twice.
	key=$(date +%F)-$(sha256sum "$work/body" | cut -c1-64)
	curl -sS --fail-with-body --retry 8 --retry-connrefused -o "$work/result" -H "Authorization: Bearer $DEEPLINK_KEY" \
		-H "Idempotency-Key: $key" --json "@$work/body" "$DEEPLINK_API/links/bulk"
	tr '{' '\n' <"$work/result" | grep -o '"index":[0-9]*,"status":[45][0-9]*' >&2 && exit 1
done
echo "$(wc -l <"$work/today") products"

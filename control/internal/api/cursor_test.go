package api

import (
	"testing"

	"deeplink/control/internal/testenv"
	"deeplink/shared/catalog"
)

// TestCursorIsCheckedTogetherWithTheOtherParameters sends queries with several bad parameters. Each of them has an entry in details.
func TestCursorIsCheckedTogetherWithTheOtherParameters(t *testing.T) {
	t.Parallel()
	w := newTestEnv(t)
	c, _ := w.writer(w.serve(), catalog.Scale)
	c.CreateLink(`{"path":"/a","channel":"email"}`)
	c.CreateLink(`{"path":"/b","channel":"email"}`)
	good := *testenv.DecodeReply[cursorPage](t, c.Do("GET", "/links?after=&limit=1&channel=email", "")).NextCursor
	for query, fields := range map[string]string{
		"after=x&limit=0": "after,limit",
		"after=x&limit=0&total=yes&channel=carrier":       "after,limit,channel,total",
		"limit=0&channel=email&after=" + good:             "limit",
		"limit=0&after=" + good:                           "after,limit",
		"total=1&include=all&channel=email&after=" + good: "include,total",
		"channel=carrier&after=" + good:                   "channel", // it may be right for the channel that was meant
		"channel=carrier&after=" + good + "A":             "after,channel",
		"after=x&page=1":                                  "after",
		"after=&page=0":                                   "after",
		"after=x&after=y":                                 "after",
	} {
		if r := c.patient("GET", "/links?"+query, ""); r.Status != 400 || r.Fields() != fields {
			t.Errorf("%s: %s, expected 400 about %s", query, r, fields)
		}
	}
}

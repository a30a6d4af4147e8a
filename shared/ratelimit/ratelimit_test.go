package ratelimit_test

import (
	"testing"
	"time"

	"deeplink/shared/ratelimit"
)

func TestSurfacesHaveTheDocumentedLimits(t *testing.T) {
	t.Parallel()
	names := make(map[string]bool)
	for _, test := range []struct {
		surface ratelimit.Surface
		limit   int
		window  time.Duration
	}{
		{ratelimit.Resolution, 500, time.Second},
		{ratelimit.Match, 30, time.Minute},
		{ratelimit.LinkReads, 1000, time.Second},
		{ratelimit.LinkWrites, 100, time.Second},
		{ratelimit.LinkBulk, 10, time.Second},
		{ratelimit.SDKSession, 60, time.Minute},
		{ratelimit.SDKEvents, 600, time.Minute},
		{ratelimit.Portal, 30, time.Second},
		{ratelimit.Regeneration, 10, time.Hour},
	} {
		if test.surface.Limit != test.limit || test.surface.Window != test.window {
			t.Errorf("%+v, expected %d per %s", test.surface, test.limit, test.window)
		}
		if test.surface.Name == "" || names[test.surface.Name] {
			t.Errorf("%+v shares its name", test.surface)
		}
		names[test.surface.Name] = true
	}
}

func TestRetryAfterIsTheSmallestWholeNumberOfSeconds(t *testing.T) {
	t.Parallel()
	for wait, expected := range map[time.Duration]int{
		0:                             1,
		time.Nanosecond:               1,
		time.Second:                   1,
		time.Second + time.Nanosecond: 2,
		59*time.Second + 1:            60,
		time.Hour:                     3600,
	} {
		if got := ratelimit.RetryAfter(wait); got != expected {
			t.Errorf("%s: got %d, expected %d", wait, got, expected)
		}
	}
}

func TestMessageIsTheDocumentedOne(t *testing.T) {
	t.Parallel()
	for seconds, expected := range map[int]string{
		1:  "Rate limit exceeded. Retry after 1 second(s).",
		42: "Rate limit exceeded. Retry after 42 second(s).",
	} {
		if got := ratelimit.Message(seconds); got != expected {
			t.Errorf("%d: got %q, expected %q", seconds, got, expected)
		}
	}
}

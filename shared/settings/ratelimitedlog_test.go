package settings

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestRepeatedErrorsAreRateLimited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var printed bytes.Buffer
		log := Log{LogFormat: "text"}.Logger(&printed)
		lines := func(text string) int { return strings.Count(printed.String(), text) }
		for i := range 1000 {
			log.Error("request failed", "i", i)
			log.With("a", 1).Warn("another thing")
			log.Info("request")
		}
		if failed, others, requests := lines("request failed"), lines("another thing"), lines("msg=request\n"); failed != linesAtOnce || others != linesAtOnce || requests != 1000 {
			t.Errorf("%d and %d lines of two errors, expected %d of each; %d of requests, expected 1000", failed, others, linesAtOnce, requests)
		}
		time.Sleep(2 * lineEvery)
		for range 1000 {
			log.Error("request failed")
		}
		if n := lines("request failed"); n != linesAtOnce+2 {
			t.Errorf("%d lines two seconds later, expected %d", n, linesAtOnce+2)
		}
		if !strings.Contains(printed.String(), fmt.Sprintf("leftOut=%d", 1000-linesAtOnce)) {
			t.Errorf("nothing says that %d lines were left out", 1000-linesAtOnce)
		}
	})
}

func TestFurtherMessagesShareOneLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var printed bytes.Buffer
		log := slog.New(newRateLimitedHandler(slog.NewTextHandler(&printed, nil)))
		for i := range 10_000 {
			log.Warn(fmt.Sprint("http: something about ", i))
		}
		if n := strings.Count(printed.String(), "\n"); n != maxMessages+linesAtOnce {
			t.Errorf("%d lines, expected %d", n, maxMessages+linesAtOnce)
		}
	})
}

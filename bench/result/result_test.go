package result_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"deeplink/bench/result"
)

func TestFileIsReadBackUnchanged(t *testing.T) {
	t.Parallel()
	histogram := result.NewHistogram()
	for i := range 1000 {
		if err := histogram.RecordValue(int64(time.Duration(i+1) * time.Microsecond)); err != nil {
			t.Fatal(err)
		}
	}
	latencies := result.Summary(histogram)
	if latencies.P50 < 499 || latencies.P50 > 501 || latencies.P999 < 998 || latencies.P999 > 1000 {
		t.Errorf("of 1 to 1,000 µs p50 is %v and p99.9 %v", latencies.P50, latencies.P999)
	}
	latencies.Histogram = nil // not kept in files
	file := &result.File{
		Command: []string{"load"}, Began: time.Unix(1700000000, 0).UTC(), Machine: result.ThisMachine(),
		Series: []result.Series{{Contender: "edge", Scenario: "redirect", Rounds: []result.Round{
			{Requests: 10, Answers: 10, Statuses: map[int]int64{302: 10}, Seconds: 2, Latencies: latencies},
		}}},
	}
	path := filepath.Join(t.TempDir(), "result.json")
	if err := file.Write(path); err != nil {
		t.Fatal(err)
	}
	read, err := result.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(file, read); diff != "" {
		t.Error(diff)
	}
}

func TestRatioIsTheMedianOfRatios(t *testing.T) {
	t.Parallel()
	series := func(answers ...int64) (s result.Series) {
		for _, n := range answers {
			s.Rounds = append(s.Rounds, result.Round{Answers: n, Seconds: 1})
		}
		return s
	}
	// In the second round the machine was slow for both.
	ratios, middle := series(80, 8, 90).Against(series(100, 10, 100), result.Round.Rate)
	if diff := cmp.Diff([]float64{0.8, 0.8, 0.9}, ratios); diff != "" || middle != 0.8 {
		t.Errorf("ratios %v, median %v", ratios, middle)
	}
	if even := series(1, 2, 3, 4).Median(result.Round.Rate); even != 2.5 {
		t.Errorf("the median of 1 to 4 is %v", even)
	}
	if none := series().Median(result.Round.Rate); none != 0 {
		t.Errorf("the median of nothing is %v", none)
	}
}

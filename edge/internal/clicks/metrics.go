package clicks

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"deeplink/shared/click"
)

// counts are the counters of metrics.
type counts struct {
	shards     [shardCount]shard
	shipped    atomic.Int64
	shipErrors atomic.Int64
	unrecorded atomic.Int64
	lost       atomic.Int64
	through    atomic.Int64 // milliseconds
}

// shard has a cache line of its own, so that processor cores do not contend for it.
type shard struct {
	recorded [click.Human + 1]atomic.Int64
	_        [128 - 8*(click.Human+1)%128]byte
}

func (c *counts) record(slot int, class click.Class) {
	c.shards[uint(slot)%shardCount].recorded[class].Add(1)
}

var (
	recordedDesc = describe("recorded_total", "Clicks that were recorded, by class.", "class")
	shippedDesc  = describe("shipped_total", "Clicks that are committed in Postgres.")
	errorsDesc   = describe("ship_errors_total", "Rounds of shipping that failed.")
	lagDesc      = describe("lag_seconds", "Age of the time up to which all clicks are committed in Postgres.")
	segmentsDesc = describe("segments", "Segments of the log: being written, with clicks that wait, and free.", "state")
	bytesDesc    = describe("bytes", "Size of the clicks that wait, and of the space for them.", "of")
	detailDesc   = describe("unrecorded_total", "Clicks that were only counted, because there was no space for their details.")
	lostDesc     = describe("lost_total", "Clicks, and intervals of clicks, that were lost.")
	durableDesc  = describe("durable", "Whether the log is in a directory.")
	wantedDesc   = describe("directory_set", "Whether a directory is configured.")
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("deeplink_edge_clicks_"+name, help, labels, nil)
}

// Collectors returns the metrics. An edge that records nothing has none.
func (r *Recorder) Collectors() []prometheus.Collector {
	if !r.on {
		return nil
	}
	return []prometheus.Collector{collector{r}}
}

type collector struct{ *Recorder }

// Describe implements prometheus.Collector.
func (r collector) Describe(descriptions chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{recordedDesc, shippedDesc, errorsDesc, lagDesc, segmentsDesc, bytesDesc, detailDesc, lostDesc, durableDesc, wantedDesc} {
		descriptions <- d
	}
}

// Collect implements prometheus.Collector.
func (r collector) Collect(metrics chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, value int64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value), labels...)
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for class := click.Head; class <= click.Human; class++ {
		var n int64
		for i := range r.counts.shards {
			n += r.counts.shards[i].recorded[class].Load()
		}
		counter(recordedDesc, n, class.String())
	}
	counter(shippedDesc, r.counts.shipped.Load())
	counter(errorsDesc, r.counts.shipErrors.Load())
	counter(detailDesc, r.counts.unrecorded.Load())
	counter(lostDesc, r.counts.lost.Load())
	gauge(lagDesc, r.lag().Seconds())
	gauge(durableDesc, asNumber(r.durable.Load()))
	gauge(wantedDesc, asNumber(r.options.Dir != ""))

	r.mu.Lock()
	defer r.mu.Unlock()
	var waiting, bytes int
	for _, l := range r.logs() {
		from := l.acknowledged.Load()
		for _, s := range l.segments {
			if end := s.base + uint64(s.reserved()); end > from && s != r.current.Load() {
				waiting++
			}
			if end := s.base + uint64(s.reserved()); end > from {
				bytes += int(end-max(from, s.base)) * slotSize
			}
		}
	}
	gauge(segmentsDesc, 1, "writing")
	gauge(segmentsDesc, float64(waiting), "waiting")
	gauge(segmentsDesc, float64(max(0, r.store.most-waiting-1)), "free")
	gauge(bytesDesc, float64(bytes), "waiting")
	gauge(bytesDesc, float64(r.store.most*r.store.size), "limit")
}

// lag returns the age of through, or that of the process until it has published.
func (r *Recorder) lag() time.Duration {
	through := r.counts.through.Load()
	if through == 0 {
		return time.Since(r.clock.start)
	}
	return max(0, time.Duration(r.clock.at(time.Now())-through)*time.Millisecond)
}

func asNumber(set bool) float64 {
	if set {
		return 1
	}
	return 0
}

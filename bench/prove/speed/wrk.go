package speed

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"time"

	"deeplink/bench/prove/baseline"
	"deeplink/bench/result"
)

const (
	// wrkRequests are the different requests of a run, sent in turn: enough that a million links are asked for about as often as if each
	// request were drawn anew, few enough to be kept by wrk.
	wrkRequests = 1 << 18
	// wrkClients are the addresses that requests come from: as many as an edge remembers the counts of.
	wrkClients = 50_000
	// wrkBrowsers are the different User-Agents: four systems, four versions.
	wrkBrowsers = 16
	// wrkGrace is for making the requests, and for the end.
	wrkGrace = 30 * time.Second
)

//go:embed wrk.lua
var wrkScript []byte

// wrk runs the load generator of that name: a closed loop of 64 connections, one request under way on each.
type wrk struct {
	program string
	dir     string
	prefix  []string // the command that pins it
	draws   int      // how many different requests there are
}

func newWrk(dir string, prefix []string) (wrk, error) {
	program, err := baseline.Find("wrk")
	if err != nil {
		return wrk{}, err
	}
	return wrk{program, dir, prefix, wrkRequests}, os.WriteFile(filepath.Join(dir, "wrk.lua"), wrkScript, 0o644)
}

func (w wrk) requests() string { return filepath.Join(w.dir, "requests") }

// prepare draws the requests of the runs to come: for the keys by Zipf's law, the first the most often, in this order.
func (w wrk) prepare(keys []string) error {
	var text bytes.Buffer
	draw := newZipf(len(keys))
	for range w.draws {
		client := rand.IntN(wrkClients)
		fmt.Fprintf(&text, "%s 10.%d.%d.%d %d\n", keys[draw.next()], client>>16, client>>8&255, client&255, rand.IntN(wrkBrowsers))
	}
	return os.WriteFile(w.requests(), text.Bytes(), 0o644)
}

// run asks addr for a span what was prepared. busy is the share of the span for which wrk itself was computing: near 1, it is wrk that
// was measured.
func (w wrk) run(ctx context.Context, addr string, span time.Duration) (round result.Round, busy float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, span+wrkGrace)
	defer cancel()
	command := append(append([]string{}, w.prefix...), w.program, "-t", "1", "-c", "64",
		"-d", strconv.Itoa(int(span.Seconds()))+"s", "-s", filepath.Join(w.dir, "wrk.lua"), "http://"+addr, "--", w.requests())
	out, err := exec.CommandContext(ctx, command[0], command[1:]...).CombinedOutput()
	if err != nil {
		return round, 0, fmt.Errorf("%q: %w: %s", command, err, out)
	}
	round, busy, err = parseWrk(out)
	if err != nil {
		err = fmt.Errorf("%q: %w: %s", command, err, out)
	}
	return round, busy, err
}

var errWrk = errors.New("wrk did not say what it measured")

// parseWrk reads what wrk.lua writes. wrk itself tells of statuses only how many were above 399.
func parseWrk(out []byte) (round result.Round, busy float64, err error) {
	var began float64
	var end struct {
		CPU                            float64
		Requests, Microseconds, Status int64
		Connect, Read, Write, Timeout  int64
		P50, P90, P99, P999, Max       float64
	}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		if text, ok := bytes.CutPrefix(lines.Bytes(), []byte("began ")); ok {
			if began, err = strconv.ParseFloat(string(text), 64); err != nil {
				return round, 0, err
			}
		}
		if text, ok := bytes.CutPrefix(lines.Bytes(), []byte("result ")); ok {
			if err := json.Unmarshal(text, &end); err != nil {
				return round, 0, err
			}
		}
	}
	if end.Requests == 0 {
		return round, 0, errWrk
	}
	round = result.Round{
		Requests: end.Requests + end.Connect + end.Read + end.Write + end.Timeout, Answers: end.Requests,
		Statuses: map[int]int64{302: end.Requests - end.Status}, Failures: make(map[string]int64),
		Seconds:   float64(end.Microseconds) / 1e6,
		Latencies: result.Latencies{P50: end.P50, P90: end.P90, P99: end.P99, P999: end.P999, Max: end.Max},
	}
	for name, n := range map[string]int64{
		"a status above 399": end.Status, "connecting": end.Connect, "reading": end.Read, "writing": end.Write, "no answer within 2 s": end.Timeout,
	} {
		if n > 0 {
			round.Failures[name] = n
		}
	}
	return round, (end.CPU - began) / round.Seconds, nil
}

// zipf draws numbers by Zipf's law with the exponent 1: the k-th comes 1/k as often as the first.
type zipf struct{ sums []float64 }

func newZipf(n int) zipf {
	z := zipf{make([]float64, n)}
	var sum float64
	for k := range n {
		sum += 1 / float64(k+1)
		z.sums[k] = sum
	}
	return z
}

func (z zipf) next() int {
	return sort.SearchFloat64s(z.sums, rand.Float64()*z.sums[len(z.sums)-1])
}

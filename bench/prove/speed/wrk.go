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
	// wrkRequests is how many different requests wrk sends in turn: enough that a million links are requested about as often as with fresh
	// draws, few enough for wrk's memory.
	wrkRequests = 1 << 18
	// wrkClients is the number of client addresses: as many as an edge counts separately.
	wrkClients = 50_000
	// wrkBrowsers is the number of different User-Agents: four systems, four versions.
	wrkBrowsers = 16
	// wrkGrace allows for generating the requests, and for the end.
	wrkGrace = 30 * time.Second
)

//go:embed wrk.lua
var wrkScript []byte

// wrk runs the load generator of that name: a closed loop of 64 connections, with one request in progress on each.
type wrk struct {
	program string
	dir     string
	prefix  []string // the command that pins it
	draws   int      // number of different requests
}

func newWrk(dir string, prefix []string) (wrk, error) {
	program, err := baseline.Find("wrk")
	if err != nil {
		return wrk{}, err
	}
	return wrk{program, dir, prefix, wrkRequests}, os.WriteFile(filepath.Join(dir, "wrk.lua"), wrkScript, 0o644)
}

// prepare draws requests for these keys by Zipf's law, the first one most often, and returns the file that holds them. Servers that are
// compared with the same number of keys get the same requests.
func (w wrk) prepare(keys []string) (file string, err error) {
	file = filepath.Join(w.dir, fmt.Sprintf("requests-%d", len(keys)))
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	var text bytes.Buffer
	draw := newZipf(len(keys))
	for range w.draws {
		client := rand.IntN(wrkClients)
		fmt.Fprintf(&text, "%s 10.%d.%d.%d %d\n", keys[draw.next()], client>>16, client>>8&255, client&255, rand.IntN(wrkBrowsers))
	}
	return file, os.WriteFile(file, text.Bytes(), 0o644)
}

// run sends the requests of a file to addr for a duration. busy is the share of the time for which wrk itself used the CPU: near 1, the
// result is wrk's own limit.
func (w wrk) run(ctx context.Context, addr, requests string, span time.Duration) (round result.Round, busy float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, span+wrkGrace)
	defer cancel()
	command := append(append([]string{}, w.prefix...), w.program, "-t", "1", "-c", "64",
		"-d", strconv.Itoa(int(span.Seconds()))+"s", "-s", filepath.Join(w.dir, "wrk.lua"), "http://"+addr, "--", requests)
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

var errWrk = errors.New("wrk printed no result")

// parseWrk reads the output of wrk.lua. wrk itself only counts statuses above 399.
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
		"a status above 399": end.Status, "connecting": end.Connect, "reading": end.Read, "writing": end.Write, "no response within 2 s": end.Timeout,
	} {
		if n > 0 {
			round.Failures[name] = n
		}
	}
	return round, (end.CPU - began) / round.Seconds, nil
}

// zipf draws numbers by Zipf's law with the exponent 1: the k-th is drawn 1/k times as often as the first.
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

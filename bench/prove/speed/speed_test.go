package speed

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"deeplink/bench/prove/baseline"
	"deeplink/bench/prove/fleet"
	"deeplink/bench/prove/visitor"
	"deeplink/bench/result"
	"deeplink/shared/testkit"
)

// The contenders must be comparable: all start and redirect, and nginx with the same job redirects to the edge's targets, with the edge's
// headers, and limits each client. openField checks all but the last.
func TestComparedServersDoTheSame(t *testing.T) {
	testkit.Prove(t)
	needsTools(t, "nginx", "wrk")
	var log bytes.Buffer
	f, err := openField(t.Context(), 200, &log)
	t.Cleanup(func() {
		if err := f.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(log.String())
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	var some []contender
	for _, c := range f.contenders {
		if c.name == sameJobNginx || c.name == theEdge && len(c.keys) == 1 {
			countsClients(t, c)
			some = append(some, c)
		}
	}
	f.contenders = some
	w, err := newWrk(f.Dir, fleet.OnCore(fleet.ClientCore))
	if err != nil {
		t.Fatal(err)
	}
	w.draws = 1_000
	file := &result.File{Machine: result.ThisMachine()}
	command := Command{Rounds: 1, Most: 1, Duration: time.Second}
	report, err := command.measure(t.Context(), f, w, file)
	if err != nil {
		t.Fatal(err)
	}
	report.print(os.Stdout)
	for _, s := range file.Series {
		if r := s.Rounds[0]; r.Answers == 0 || r.Statuses[302] != r.Answers || r.CPU <= 0 || r.Latencies.P99 <= 0 {
			t.Errorf("%s, %s: %+v", s.Contender, s.Scenario, r)
		}
	}
}

// needsTools skips the test where a program is missing, except in CI.
func needsTools(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := baseline.Find(name); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatal(err)
			}
			t.Skip(err)
		}
	}
}

// countsClients has one client exceed its rate limit.
func countsClients(t *testing.T, c contender) {
	t.Helper()
	const requests = 2_000
	l := visitor.Line{Addr: c.addr, Timeout: 30 * time.Second}
	if err := l.Connect(); err != nil {
		t.Fatal(err)
	}
	if err := l.Conn.SetDeadline(time.Now().Add(l.Timeout)); err != nil {
		t.Fatal(err)
	}
	defer l.HangUp()
	// Writes run concurrently with reads: neither side could continue if the other waited for its data to be read.
	text := strings.Repeat("GET "+c.keys[0]+" HTTP/1.1\r\nHost: "+c.addr+"\r\nX-Forwarded-For: 192.0.2.1\r\n\r\n", requests)
	go io.WriteString(l.Conn, text) // an unsent request gets no response, which the test reports
	refused := 0
	for range requests {
		if err := l.Receive(); err != nil {
			t.Fatal(err)
		}
		switch status := l.Response.StatusCode(); status {
		case http.StatusTooManyRequests:
			refused++
		case http.StatusFound:
		default:
			t.Fatalf("%s: %d", c.name, status)
		}
	}
	if refused == 0 {
		t.Errorf("%s admitted %d concurrent requests of one client", c.name, requests)
	}
}

func TestOutputOfTheLoadGeneratorIsRead(t *testing.T) {
	t.Parallel()
	const text = "began 1.5\nRunning 10s test @ http://127.0.0.1:1\n  1 threads and 64 connections\n" +
		`result {"cpu":6.5,"requests":1000,"microseconds":10000000,"status":2,"connect":0,"read":3,"write":0,"timeout":1,` +
		`"p50":400,"p90":500,"p99":900,"p999":1200,"max":5000}` + "\n"
	round, busy, err := parseWrk([]byte(text))
	if err != nil || busy != 0.5 || round.Answers != 1000 || round.Requests != 1004 || round.Statuses[302] != 998 || round.Rate() != 100 ||
		round.Latencies.P999 != 1200 || round.Failures["reading"] != 3 || len(round.Failures) != 3 {
		t.Errorf("%+v, busy %v, %v", round, busy, err)
	}
	if _, _, err := parseWrk([]byte("unable to connect to 127.0.0.1:1 Connection refused\n")); err == nil {
		t.Error("empty output is no error")
	}
}

func TestZipfDrawsTheFirstTheMost(t *testing.T) {
	t.Parallel()
	const n, draws = 100, 100_000
	counts := make([]int, n)
	for z := newZipf(n); counts[0] < draws/6; { // the share of the first is 0.19
		counts[z.next()]++
	}
	if counts[0] < counts[9]*5 || counts[n-1] == 0 {
		t.Errorf("the first was drawn %d times, the tenth %d times, the last %d times", counts[0], counts[9], counts[n-1])
	}
}

func TestOtherBuildIsComparedOverTheSameLinks(t *testing.T) {
	t.Parallel()
	series := func(contender, scenario string, answers int64, cpu float64) result.Series {
		return result.Series{Contender: contender, Scenario: scenario, Rounds: []result.Round{{Answers: answers, Seconds: 1, CPU: cpu}}}
	}
	r := report{file: &result.File{Series: []result.Series{
		series(theEdge, "2 links", 80, 12.5), series(theEdge, "1 link", 90, 10),
		series(theEdge+" at abc", "2 links", 100, 10), series(theEdge+" at abc", "1 link", 100, 10),
	}}, busy: make([][]float64, 4)}
	var out strings.Builder
	r.printRatios(&out)
	for _, row := range []string{
		"| 2 links | edge, 1 link | 0.80 | 0.80 – 0.80 | 0.89 | 0.93: **missed** | 0.97: **missed** |",
		"| 2 links | edge at abc | 0.80 | 0.80 – 0.80 | 0.80 |  |  |", "| 1 link | edge at abc | 1.00 | 1.00 – 1.00 | 0.90 |  |  |",
	} {
		if strings.Count(out.String(), row) != 1 {
			t.Errorf("no row %q in\n%s", row, out.String())
		}
	}
	if rows := strings.Count(out.String(), "\n"); rows != 6 { // an empty line, a header of two lines, three rows
		t.Errorf("%d lines, expected 6:\n%s", rows, out.String())
	}
}

func TestRoundsAreAddedUntilTheRatioIsKnown(t *testing.T) {
	t.Parallel()
	// A series whose CPU times alternate around 10 by a share.
	around := func(contender string, share float64, rounds int) result.Series {
		s := result.Series{Contender: contender, Scenario: "1 link"}
		for i := range rounds {
			cpu := 10.0
			switch i % 4 {
			case 1:
				cpu *= 1 + share
			case 3:
				cpu /= 1 + share
			}
			s.Rounds = append(s.Rounds, result.Round{Answers: 1, Seconds: 1, CPU: cpu})
		}
		return s
	}
	for _, test := range []struct {
		share    float64
		rounds   int
		resolved bool
	}{
		{0.02, 8, true}, {0.5, 8, false}, {0.5, 100, true},
	} {
		r := report{file: &result.File{Series: []result.Series{around(theEdge, 0, test.rounds), around(fixedFasthttp, test.share, test.rounds)}}, busy: make([][]float64, 2)}
		if got := r.resolved(); got != test.resolved {
			t.Errorf("%d rounds that differ by %.0f %%: resolved %v", test.rounds, 100*test.share, got)
		}
	}
}

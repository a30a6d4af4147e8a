// Package scenarios is `bench load`: it sends requests to a running Deeplink with package load, prints and keeps results, and checks
// thresholds.
//
//	command.go     flags, preparation, rounds (table.go prints them, thresholds.go decides about the exit status)
//	scenarios.go   what each scenario sends (links.go creates and deletes links, tokens.go reads match tokens from pages)
//	deletes.go     deletes, and the wait until edges stop serving the link
package scenarios

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"deeplink/bench/confirm"
	"deeplink/bench/load"
	"deeplink/bench/result"
)

// Command sends requests to a running Deeplink of any size.
type Command struct {
	Scenarios []string `arg:"" optional:"" default:"redirect" enum:"redirect,zipf,unknown,pages,data,match,create,get,list,delete,mixed" help:"What to send, one or more of: redirect (one popular link), zipf (many links by popularity), unknown (the same, with some codes that do not exist), pages (phones), data (/data), match (POST /match), create, get, list (the API), delete (until the edges stop serving the link), mixed (clicks during edits)."`

	Base   []string `default:"http://127.0.0.1:8080" env:"LOAD_BASE" help:"URL of an edge or of the load balancer in front of it; several, separated by commas, take turns. For delete and mixed, name every edge."`
	API    string   `name:"api" default:"http://127.0.0.1:8081" env:"LOAD_API" help:"URL of control."`
	Host   string   `help:"Host header of requests to edges, if it is not that of --base."`
	Server []string `name:"server-key" env:"LOAD_SERVER_KEY" help:"Server key of an organization, to create links (deleted at the end) and for the scenarios of the API. Several, separated by commas, take turns: rate limits apply to each."`
	Yes    bool     `short:"y" help:"Write into an organization other than demo without asking."`

	Keys   string  `type:"existingfile" help:"Links to request: a file with one path or URL per line, the most popular first."`
	Prefix string  `help:"Links to request instead: this path and a number from 0, such as /demo/k."`
	Count  int     `default:"1000000" help:"Number of links with --prefix."`
	Links  int     `default:"100" help:"Number of links to create if neither --keys nor --prefix names any."`
	Skew   float64 `default:"1.1" help:"Exponent of Zipf's law, above 1: how much more popular the first links are."`
	Share  float64 `name:"unknown" default:"0.05" help:"Share of unknown codes in the scenario unknown, from 0 to 1."`

	Connections int           `short:"c" default:"64" help:"Connections to edges and to control, each with one request at a time."`
	Rate        float64       `short:"r" help:"Requests per second, sent on schedule even if responses are slow (open loop). By default each connection sends its next request after a response (closed loop); create, get and list send what the rate limits of the server keys allow."`
	Stages      []stage       `help:"Rates one after the other, as duration:rate, such as 10s:1000,1m:5000. Each stage is a row of the results."`
	Writes      float64       `default:"90" help:"Edits per second in the scenario mixed."`
	Requests    int64         `short:"n" help:"Number of requests of a round, in place of --duration; with both, whichever ends first."`
	Duration    time.Duration `short:"d" help:"Length of a round, without warm-up (default 10s)."`
	Warmup      time.Duration `default:"2s" help:"Requests are sent for this long before each round without being counted."`
	Rounds      int           `default:"1" help:"Rounds of each scenario. Scenarios take turns."`
	Timeout     time.Duration `default:"5s" help:"Longest wait for a connection or a response."`
	Tokens      int           `default:"1000" help:"Number of match tokens to read from pages before each round of match."`
	AskEvery    time.Duration `default:"2ms" help:"How often delete requests the link from each edge."`

	Clients   int      `help:"Simulate this many clients, each with its own address of 10.0.0.0/8 in X-Forwarded-For. The edge must trust this machine (TRUSTED_PROXIES); otherwise all requests share one address, which an edge limits to 500 per second."`
	UserAgent string   `help:"User-Agent of clicks (default: a desktop browser; for pages an iPhone and an Android phone)."`
	Header    []string `sep:"none" help:"A header line of every click, such as \"Accept: */*\"; may be repeated."`
	Insecure  bool     `help:"Skip TLS certificate verification."`

	MaxP99       time.Duration `name:"max-p99" help:"Exit with status 2 if the p99 latency of expected responses of any scenario is longer."`
	MaxErrorRate rate          `name:"max-error-rate" default:"-1" placeholder:"RATE" help:"Exit with status 2 if a larger share of requests failed or got an unexpected status, such as 0.01 or 1%."`
	ExpectStatus []int         `help:"Statuses to expect, such as 302,404 (default: 200 to 399, and 404 for unknown). Any other response is then an error; --max-error-rate, 0 if not set, says how many are acceptable."`

	Output string `short:"o" enum:"table,json,csv" default:"table" help:"What to print on standard output: table, json or csv. Everything else goes to standard error."`
	Name   string `default:"deeplink" help:"Name of the deployment or build in the results."`
	JSON   string `name:"json" type:"path" help:"Also write the results to this file, for compare."`
	Append bool   `help:"Add the rounds to those in the file of --json. To compare two builds, measure them in turn, each into its own file."`
	Pin    string `help:"Run on these cores only, such as 1 or 2-3 (Linux). The generator needs cores that the server does not use."`
}

// stage is a rate for a period.
type stage struct {
	span time.Duration
	rate float64
}

// UnmarshalText parses duration:rate.
func (s *stage) UnmarshalText(text []byte) (err error) {
	span, perSecond, _ := strings.Cut(string(text), ":")
	if s.span, err = time.ParseDuration(span); err == nil {
		s.rate, err = strconv.ParseFloat(perSecond, 64)
	}
	if err != nil || s.span <= 0 || !(s.rate > 0) {
		return fmt.Errorf("%q is not a stage such as 10s:1000 (10 seconds at 1,000 requests per second)", text)
	}
	return nil
}

// rate is a share from 0 to 1. Below 0 it is not set.
type rate float64

// UnmarshalText parses 0.01 or 1%.
func (r *rate) UnmarshalText(text []byte) error {
	number, percent := strings.CutSuffix(string(text), "%")
	value, err := strconv.ParseFloat(number, 64)
	if percent {
		value /= 100
	}
	if err != nil || !(value <= 1) || value < 0 && string(text) != "-1" {
		return fmt.Errorf("%q is not a share such as 0.01 or 1%%", text)
	}
	*r = rate(value)
	return nil
}

// Validate implements kong's check of a command.
func (c *Command) Validate() error {
	switch {
	case c.Connections < 1 || c.Rounds < 1 || c.Links < 1 || c.Count < 1 || c.Tokens < 1:
		return errors.New("--connections, --rounds, --links, --count and --tokens must be at least 1")
	case c.Skew <= 1:
		return errors.New("--skew must be above 1")
	case c.Share < 0 || c.Share > 1:
		return errors.New("--unknown must be from 0 to 1")
	case c.Clients < 0 || c.Clients > load.MaxClients:
		return fmt.Errorf("--clients must be from 0 to %d", load.MaxClients)
	case c.Prefix != "" && !strings.HasPrefix(c.Prefix, "/"):
		return errors.New("--prefix must begin with /")
	case c.Append && c.JSON == "":
		return errors.New("--append needs --json")
	case c.AskEvery <= 0 || c.Writes <= 0:
		return errors.New("--ask-every and --writes must be above 0")
	case c.Requests < 0 || c.Duration < 0 || c.Rate < 0 || c.Warmup < 0 || c.MaxP99 < 0:
		return errors.New("-n, -d, -r, --warmup and --max-p99 must not be negative")
	case len(c.Stages) > 0 && (c.Rate > 0 || c.Requests > 0 || c.Duration > 0):
		return errors.New("--stages sets rates and durations: leave out -r, -n and -d")
	case (len(c.Stages) > 0 || c.Requests > 0) && (slices.Contains(c.Scenarios, "delete") || slices.Contains(c.Scenarios, "mixed")):
		return errors.New("--stages and -n need a scenario with one kind of request, not delete or mixed")
	}
	for _, line := range c.Header {
		if name, _, found := strings.Cut(line, ":"); !found || name == "" || strings.ContainsAny(line, "\r\n") {
			return fmt.Errorf("--header: %q is not a header line", line)
		}
	}
	return nil
}

// Help implements kong's longer help.
func (c *Command) Help() string {
	return `Latencies are measured from the time at which a request was due, so a slow response also delays the requests that were scheduled
behind it. Only responses with an expected status are in the percentiles; other responses are listed separately. "late" requests were
sent more than 1 ms after they were due; "backlog" is the largest number of requests that were due and not yet sent.

  bench load zipf --keys keys --rounds 5 --json a.json         five rounds
  bench load zipf --keys keys -r 20000 --clients 10000         latency at 20,000 requests per second
  bench load zipf --keys keys --stages 10s:1000,1m:5000        first 1,000 per second, then 5,000
  bench load -n 1000 --max-p99 50ms --max-error-rate 1% -o json
  bench load mixed --server-key svc_api_... -r 5000            while links are edited

Exit status: 0 all right, 1 not run, 2 a threshold missed, 3 no expected response, 4 a stale response: a deleted link was served
after its delete had completed. Ctrl-C ends a round early; its results are printed and checked all the same.`
}

// Run implements the command.
func (c *Command) Run(ctx context.Context) error {
	if c.Pin != "" {
		if err := load.Pin(c.Pin); err != nil {
			return err
		}
	}
	return c.execute(ctx, os.Stdout, os.Stderr)
}

// execute sends the requests. The results go to out, everything for the user to errOut.
func (c *Command) execute(ctx context.Context, out, errOut io.Writer) error {
	file, err := c.file()
	if err != nil {
		return err
	}
	l, err := c.prepare(ctx, errOut)
	if err != nil {
		return unreachable(err)
	}
	err = unreachable(l.rounds(ctx, file))
	l.sweep()
	if len(l.rows) > 0 {
		err = errors.Join(err, l.print(out, file))
		l.notes()
		if c.JSON != "" {
			err = errors.Join(err, file.Write(c.JSON))
		}
	}
	if err != nil {
		return err
	}
	return l.check()
}

// file returns the file that results are added to: a new one, or that of --json with --append.
func (c *Command) file() (*result.File, error) {
	file := &result.File{Command: append([]string{"bench"}, withoutKeys(os.Args[1:])...), Began: time.Now(), Machine: result.ThisMachine()}
	if !c.Append {
		return file, nil
	}
	old, err := result.Read(c.JSON)
	if errors.Is(err, os.ErrNotExist) {
		return file, nil
	}
	if err == nil && old.Machine != file.Machine {
		err = fmt.Errorf("%s was measured on a different machine: use another file", c.JSON)
	}
	return old, err
}

// withoutKeys removes server keys: result files are shared.
func withoutKeys(arguments []string) []string {
	hidden := slices.Clone(arguments)
	for i, argument := range hidden {
		if at := strings.Index(argument, "svc_"); at >= 0 {
			hidden[i] = argument[:at] + "..."
		}
	}
	return hidden
}

// loading is one execution of the command.
type loading struct {
	*Command
	errOut   io.Writer
	edges    []load.Target
	control  load.Target
	config   *tls.Config
	keys     *load.Keys // nil: --prefix
	backends []*backend
	rows     []row    // of this execution
	busy     []string // scenarios in which the generator used nearly all of its cores
}

func (c *Command) prepare(ctx context.Context, errOut io.Writer) (*loading, error) {
	l := &loading{Command: c, errOut: errOut, config: &tls.Config{InsecureSkipVerify: c.Insecure}}
	for _, base := range c.Base {
		target, err := load.ParseTarget(base)
		if err != nil {
			return nil, fmt.Errorf("--base: %w", err)
		}
		if c.Host != "" {
			target.Host = c.Host
		}
		l.edges = append(l.edges, target)
	}
	var err error
	if l.control, err = load.ParseTarget(c.API); err != nil {
		return nil, fmt.Errorf("--api: %w", err)
	}
	for _, key := range c.Server {
		l.backends = append(l.backends, newBackend(strings.TrimSuffix(c.API, "/"), key, l.config))
	}
	if err := l.findLinks(ctx); err != nil {
		l.sweep()
		return nil, err
	}
	return l, nil
}

// confirmWrites asks before links are created in an organization other than the demo organization.
func (l *loading) confirmWrites(ctx context.Context) error {
	if l.Yes {
		return nil
	}
	for _, b := range l.backends {
		orgKey, err := b.orgKey(ctx)
		if err != nil {
			return err
		}
		if orgKey == confirm.DemoOrganization {
			continue
		}
		if orgKey == "" {
			orgKey = "with a custom domain or without links"
		}
		if err := confirm.Write(fmt.Sprintf("create and delete links in the organization %s at %s", orgKey, l.API)); err != nil {
			return err
		}
	}
	return nil
}

// rounds runs all rounds of all scenarios. When ctx ends, the current round is the last.
func (l *loading) rounds(ctx context.Context, file *result.File) error {
	for range l.Rounds {
		for _, name := range l.Scenarios {
			parts, err := l.play(ctx, name)
			for _, p := range parts {
				l.rows = append(l.rows, row{part: p, number: addRound(file, l.Name, p)})
			}
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// play runs one round of a scenario, and records whether the generator used nearly all of its cores.
func (l *loading) play(ctx context.Context, name string) ([]part, error) {
	began, used := time.Now(), processorTime()
	parts, err := scenarios[name].play(l, ctx, name)
	share := float64(processorTime()-used) / float64(time.Since(began)) / float64(runtime.GOMAXPROCS(0))
	if share > 0.9 && !slices.Contains(l.busy, name) {
		l.busy = append(l.busy, name)
	}
	return parts, err
}

// part is the result of one round of a scenario, or of one of its stages or sides.
type part struct {
	scenario string
	round    result.Round
}

// addRound adds a round to its series and returns its number, from 1.
func addRound(file *result.File, contender string, p part) int {
	for i := range file.Series {
		if s := &file.Series[i]; s.Contender == contender && s.Scenario == p.scenario {
			s.Rounds = append(s.Rounds, p.round)
			return len(s.Rounds)
		}
	}
	file.Series = append(file.Series, result.Series{Contender: contender, Scenario: p.scenario, Rounds: []result.Round{p.round}})
	return 1
}

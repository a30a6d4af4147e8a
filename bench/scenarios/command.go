// Package scenarios is `bench load`: it sends requests to a Deeplink that somebody else runs, by package load, and leaves results.
//
//	command.go    what is prepared, and rounds in turn (table.go: what it prints)
//	scenarios.go  what is sent (links.go makes links and deletes them, tokens.go reads match tokens from pages)
//	deletes.go    deletes, until the edges say so
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
	"strings"
	"syscall"
	"time"

	"deeplink/bench/load"
	"deeplink/bench/result"
)

// Command sends requests to a Deeplink that runs, of whatever size.
type Command struct {
	Scenarios []string `arg:"" optional:"" default:"redirect" enum:"redirect,zipf,unknown,pages,data,match,create,get,list,delete,mixed" help:"What to send, one or more of: redirect (one hot link), zipf (many links by popularity), unknown (the same, with some codes that do not exist), pages (phones), data (/data), match (POST /match), create, get, list (the API), delete (until the edges say so), mixed (clicks beside edits)."`

	Base   []string `default:"http://127.0.0.1:8080" env:"LOAD_BASE" help:"URL of an edge, or of what stands before them; several with commas between are asked in turn. For delete and mixed name every edge."`
	API    string   `name:"api" default:"http://127.0.0.1:8081" env:"LOAD_API" help:"URL of control."`
	Host   string   `help:"Host to ask edges for, if not that of --base."`
	Server []string `name:"server-key" env:"LOAD_SERVER_KEY" help:"Server key of an organization, to make links that are deleted in the end, and for the scenarios of the API. Several with commas between are used in turn: limits count for each."`

	Keys   string  `type:"existingfile" help:"Links to click: a file with a path or URL a line, the most popular first."`
	Prefix string  `help:"Links to click instead: this path and a number from 0, such as /demo/k."`
	Count  int     `default:"1000000" help:"How many of these there are."`
	Links  int     `default:"100" help:"How many links to make where neither names them."`
	Skew   float64 `default:"1.1" help:"Exponent of Zipf's law, above 1: how much more popular the popular are."`
	Share  float64 `name:"unknown" default:"0.05" help:"Share of unknown codes in the scenario unknown, from 0 to 1."`

	Connections int           `short:"c" default:"64" help:"Connections to edges and control, each with one request at a time."`
	Rate        float64       `short:"r" help:"Requests a second, due whatever becomes of them (open loop). By default each connection asks when it was answered (closed loop); create, get and list ask as often as the server keys may. delete takes its own time."`
	Writes      float64       `default:"90" help:"Edits a second beside the clicks of mixed."`
	Duration    time.Duration `short:"d" default:"10s" help:"How long a round is."`
	Warmup      time.Duration `default:"2s" help:"How long requests are sent before each round without counting."`
	Rounds      int           `short:"n" default:"1" help:"Rounds of each scenario. They take turns."`
	Timeout     time.Duration `default:"5s" help:"How long to wait for an answer."`
	Tokens      int           `default:"1000" help:"How many match tokens to read from pages before each round of match."`
	AskEvery    time.Duration `default:"2ms" help:"How often delete asks each edge."`

	Clients   int      `help:"Ask for this many clients, each with an address of 10.0.0.0/8 in X-Forwarded-For. The edge must trust whom it hears from (TRUSTED_PROXIES), else all come from one address, of which an edge answers 500 a second."`
	UserAgent string   `help:"User-Agent of clicks. By default a browser on a desk, for pages an iPhone and an Android phone."`
	Header    []string `sep:"none" help:"A header line of every click, such as \"Accept: */*\"; may be repeated."`
	Insecure  bool     `help:"Believe every certificate."`

	Name   string `default:"deeplink" help:"Name of what is measured, in the results."`
	JSON   string `name:"json" type:"path" help:"Write the results to this file."`
	Append bool   `help:"Add the rounds to those the file has. Two builds are compared with each other by measuring them in turn, each into its own file."`
	Pin    string `help:"Run on these cores only, such as 1 or 2-3. The generator needs cores that the server has not."`
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
	}
	for _, line := range c.Header {
		if name, _, found := strings.Cut(line, ":"); !found || name == "" || strings.ContainsAny(line, "\r\n") {
			return fmt.Errorf("--header: %q is no header line", line)
		}
	}
	return nil
}

// Help implements kong's longer help.
func (c *Command) Help() string {
	return `A latency counts from when its request was due, in microseconds. "late" requests were sent more than 1 ms after they were
due, because their connection still waited for an answer; "backlog" is how many were due and not sent at the worst time.

  bench load redirect zipf --keys keys -n 5 --json a.json      five rounds of each, in turn
  bench load zipf --keys keys -r 20000 --clients 10000         how long clicks take at 20,000 a second
  bench load mixed --server-key svc_api_... -r 5000            while links are edited beside
  bench plot a.json -o a.svg; bench compare a.json b.json

Ctrl-C ends a round early; what was seen is printed and written all the same.`
}

// Run implements the command.
func (c *Command) Run(ctx context.Context) error {
	if c.Pin != "" {
		if err := load.Pin(c.Pin); err != nil {
			return err
		}
	}
	file, err := c.file()
	if err != nil {
		return err
	}
	err = c.measure(ctx, file, os.Stdout)
	if c.JSON != "" && len(file.Series) > 0 {
		err = errors.Join(err, file.Write(c.JSON))
	}
	return err
}

// measure does all rounds, adds them to file and prints them.
func (c *Command) measure(ctx context.Context, file *result.File, out io.Writer) error {
	l, err := c.prepare(ctx, out)
	if err != nil {
		return err
	}
	defer l.sweep()
	defer l.table.notes()
	return l.rounds(ctx, file)
}

// file returns where the results go: a new file, or the one there is.
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
		err = fmt.Errorf("%s is from another machine", c.JSON)
	}
	return old, err
}

// withoutKeys hides server keys: results are shown around.
func withoutKeys(arguments []string) []string {
	hidden := slices.Clone(arguments)
	for i, argument := range hidden {
		if at := strings.Index(argument, "svc_"); at >= 0 {
			hidden[i] = argument[:at] + "..."
		}
	}
	return hidden
}

// loading is a run of the command: what was prepared, and who prints.
type loading struct {
	*Command
	edges    []load.Target
	control  load.Target
	config   *tls.Config
	keys     *load.Keys // nil: --prefix
	backends []*backend
	table    *table
}

func (c *Command) prepare(ctx context.Context, out io.Writer) (*loading, error) {
	open := c.Rate > 0 || slices.ContainsFunc(c.Scenarios, func(name string) bool { return scenarios[name].open })
	l := &loading{Command: c, table: &table{out: out, open: open}, config: &tls.Config{InsecureSkipVerify: c.Insecure}}
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

// rounds does all rounds of all scenarios. When ctx ends, the round it does is the last.
func (l *loading) rounds(ctx context.Context, file *result.File) error {
	for range l.Rounds {
		for _, name := range l.Scenarios {
			parts, err := l.play(ctx, name)
			if ctx.Err() != nil && len(parts) == 0 {
				return nil
			}
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			for _, p := range parts {
				l.table.row(addRound(file, l.Name, p), p)
			}
		}
		if ctx.Err() != nil {
			return nil
		}
	}
	return nil
}

// play does one round of a scenario, and sees how much of its cores the generator took.
func (l *loading) play(ctx context.Context, name string) ([]part, error) {
	began, used := time.Now(), processorTime()
	parts, err := scenarios[name].play(l, ctx, name)
	l.table.noteBusy(name, float64(processorTime()-used)/float64(time.Since(began))/float64(runtime.GOMAXPROCS(0)))
	return parts, err
}

// processorTime is what this process has used of all cores.
func processorTime() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage) // never fails with these arguments
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// part is what was seen in one round of a scenario, or of one side of it.
type part struct {
	scenario string
	round    result.Round
}

// addRound adds a round to those of its series and returns its number, from 1.
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

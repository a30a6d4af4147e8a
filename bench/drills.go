package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// drillsCommand makes one thing go wrong at a time, on purpose, and compares what it costs with what is promised.
type drillsCommand struct {
	Only []string `help:"Names of the drills to run. Default: all."`
	Log  string   `help:"File for what the programs write." type:"path"`
}

// drill is one thing that goes wrong on a fleet of its own, with three edges and two controls.
type drill struct {
	name         string
	edgeSettings []string
	run          func(ctx context.Context, f *fleet) ([]finding, error)
}

// drills are all there are. The scale of each is what the README's table was measured with; tests run smaller ones.
func drills() []drill {
	restart := rollingRestart{clients: 8, rounds: 3, drain: time.Second}
	return []drill{
		{name: "deletes", run: deletes{alive: 1000, hung: 200, restarted: 200}.run},
		{name: "rolling restart", edgeSettings: []string{"EDGE_DRAIN=" + restart.drain.String()}, run: restart.run},
		{name: "Postgres stopped", run: outage{span: 30 * time.Second, clients: 4}.run},
		{name: "stampede", run: stampede{requests: 10_000}.run},
		{name: "everything forgotten", run: forgetting{links: 5_000, clients: 16, calm: 5 * time.Second, settled: 5 * time.Second}.run},
		{name: "made-up keys", run: kidFlood{perSecond: 1000, span: 30 * time.Second}.run},
	}
}

// finding is one figure of a drill beside its bound.
type finding struct {
	what   string
	figure string
	bound  string
	kept   bool
	timed  bool // a busy machine alone may break the bound
}

// atMost compares a span with the longest that it may be.
func atMost(what string, got, bound time.Duration) finding {
	return finding{what: what, figure: milliseconds(got), bound: "≤ " + milliseconds(bound), kept: got <= bound, timed: true}
}

// counted is a figure that no busy machine can make worse.
func counted(what, figure, bound string, kept bool) finding {
	return finding{what: what, figure: figure, bound: bound, kept: kept}
}

// none compares a count with zero.
func none(what string, n, of int) finding {
	return counted(what, fmt.Sprintf("%d of %d", n, of), "0", n == 0 && of > 0)
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.1f ms", inMilliseconds(d)) }

var errBound = errors.New("a bound was not kept")

// Run prints a table. A bound that was not kept is an error.
func (c drillsCommand) Run(ctx context.Context) error {
	log, err := createLog(c.Log)
	if err != nil {
		return err
	}
	defer log.Close()
	fmt.Println("| drill | what | figure | bound | kept |\n|---|---|--:|--:|---|")
	broken := 0
	for _, d := range drills() {
		if len(c.Only) > 0 && !slices.Contains(c.Only, d.name) {
			continue
		}
		findings, err := d.do(ctx, log)
		for _, f := range findings {
			kept := "yes"
			if !f.kept {
				kept = "**no**"
				broken++
			}
			fmt.Printf("| %s | %s | %s | %s | %s |\n", d.name, f.what, f.figure, f.bound, kept)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
	}
	if broken > 0 {
		return fmt.Errorf("%w: %d", errBound, broken)
	}
	return nil
}

// do runs the drill on a fleet of its own.
func (d drill) do(ctx context.Context, log io.Writer) (findings []finding, err error) {
	f, err := launch(ctx, 2, 3, log, d.edgeSettings...)
	if err != nil {
		return nil, err
	}
	findings, err = d.run(ctx, f)
	return findings, errors.Join(err, f.close(context.WithoutCancel(ctx)))
}

// key is a link that a drill uses.
type key struct{ id, path string }

// makeLinks makes n links of one organization, and returns them with their tenant.
func makeLinks(ctx context.Context, f *fleet, n int) (*tenant, []key, error) {
	t, err := f.newTenant(ctx)
	if err != nil {
		return nil, nil, err
	}
	keys := make([]key, n)
	for i := range keys {
		if keys[i], err = t.makeLink(ctx); err != nil {
			return nil, nil, err
		}
	}
	return t, keys, nil
}

func (t *tenant) makeLink(ctx context.Context) (key, error) {
	a, err := t.call(ctx, "POST", "/links", fields{"path": "/x", "fallbackUrl": target(0)}, 201)
	return key{a.link.ID, "/" + t.orgKey + "/" + a.link.ShortCode}, err
}

// metric reads one counter or gauge of a node.
func metric(ctx context.Context, admin, name string) (value float64, err error) {
	text, err := fetch(ctx, "http://"+admin+"/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			_, err := fmt.Sscan(rest, &value)
			return value, err
		}
	}
	return 0, fmt.Errorf("%s has no metric %s", admin, name)
}

// fetch returns the body of a page that is there.
func fetch(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %d %s", url, response.StatusCode, text)
	}
	return string(text), err
}

package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"deeplink/bench/prove/faults/broken"
	"deeplink/bench/prove/faults/history"
	"deeplink/bench/prove/fleet"
	"deeplink/bench/prove/proof"
)

// errMissed means that the checker found no violation in a build with a broken rule.
var errMissed = errors.New("a broken rule was not detected")

// CatchCommand shows that the checker detects each broken rule of the protocol.
type CatchCommand struct {
	Rules        []string      `arg:"" optional:"" help:"Names of the patches in faults/broken. Default: all."`
	Tries        int           `default:"20" help:"Number of short runs until a broken rule counts as missed."`
	Only         []string      `help:"Names of the faults to inject. Default: all."`
	Seed         uint64        `help:"Seed of everything random. 0: a new one."`
	StaleIfError time.Duration `default:"3s" help:"EDGE_STALE_IF_ERROR of all edges but the last, which has 0."`
}

// Run breaks one rule after the other, gives each of these builds short runs until the checker finds a violation, and prints how long that
// took. A rule that is not detected is an error.
func (c CatchCommand) Run(ctx context.Context, out *proof.Output) error {
	if c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	rules, err := c.chosen()
	if err != nil {
		return err
	}
	l := shortLoad
	if l.faults, err = named(c.Only); err != nil {
		return err
	}
	l.untilFound = true
	missed := 0
	fmt.Fprintln(out, "| broken | the rule | detected in run | after | seed | by |\n|---|---|--:|--:|--:|---|")
	for _, rule := range rules {
		caught, err := c.catchOne(ctx, rule, l, out.Log)
		if err != nil {
			return fmt.Errorf("%s: %w", rule.Name, err)
		}
		fmt.Fprintln(out, caught)
		if caught.found == nil {
			missed++
		}
	}
	if missed > 0 {
		return fmt.Errorf("%w: %d of %d", errMissed, missed, len(rules))
	}
	return nil
}

// chosen returns the rules that the command line names.
func (c CatchCommand) chosen() ([]broken.Rule, error) {
	rules, err := broken.Rules()
	if err != nil || len(c.Rules) == 0 {
		return rules, err
	}
	var chosen []broken.Rule
	for _, name := range c.Rules {
		i := slices.IndexFunc(rules, func(r broken.Rule) bool { return r.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("unknown rule %q", name)
		}
		chosen = append(chosen, rules[i])
	}
	return chosen, nil
}

// caught is how the checker detected a broken rule.
type caught struct {
	rule   broken.Rule
	runs   int
	seed   uint64           // of the last run
	found  *history.Finding // nil: not detected
	during []string         // the faults that were active then
}

// String returns a table row.
func (c caught) String() string {
	if c.found == nil {
		return fmt.Sprintf("| %s | %s | **not in %d** | | | |", c.rule.Name, c.rule.Text, c.runs)
	}
	return fmt.Sprintf("| %s | %s | %d | %.1f s | %d | %s of %s, %s |", c.rule.Name, c.rule.Text, c.runs, c.found.At.Seconds(), c.seed,
		c.found.Verdict, c.found.Key, strings.Join(c.during, " and "))
}

func (c CatchCommand) catchOne(ctx context.Context, rule broken.Rule, l workload, log io.Writer) (caught, error) {
	result := caught{rule: rule}
	bin, err := buildBroken(ctx, rule)
	if err != nil {
		return result, err
	}
	defer os.RemoveAll(bin)
	for result.runs < c.Tries && result.found == nil {
		result.seed = c.Seed + uint64(result.runs)
		result.runs++
		report, err := runFaults(ctx, bin, l, result.seed, c.StaleIfError, log)
		if report != nil && len(report.Findings) > 0 {
			result.found, result.during = &report.Findings[0], report.during
		} else if err != nil {
			return result, err
		}
	}
	return result, nil
}

// buildBroken compiles a fleet in which a rule is broken, like build.
func buildBroken(ctx context.Context, rule broken.Rule) (bin string, err error) {
	sources, err := os.MkdirTemp("", "deeplink-broken-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(sources)
	overlay, err := rule.Overlay(ctx, sources)
	if err != nil {
		return "", err
	}
	return fleet.Build(ctx, "-overlay", overlay)
}

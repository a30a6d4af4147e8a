package faults

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"deeplink/bench/faults/broken"
	"deeplink/bench/faults/history"
	"deeplink/bench/fleet"
)

// everyRule stands for all rules on the command line.
const everyRule = "all"

// errMissed: the bench can not see that a rule is broken.
var errMissed = errors.New("a broken rule was not noticed")

// catch breaks one rule after the other, gives each of these builds short runs until the bench notices, and prints how fast that
// was.
func (c Command) catch(ctx context.Context, l workload, log io.Writer) error {
	rules, err := c.chosen()
	if err != nil {
		return err
	}
	l.untilFound = true
	missed := 0
	fmt.Println("| broken | the rule | caught in run | after | seed | by |\n|---|---|--:|--:|--:|---|")
	for _, rule := range rules {
		caught, err := c.catchOne(ctx, rule, l, log)
		if err != nil {
			return fmt.Errorf("%s: %w", rule.Name, err)
		}
		fmt.Println(caught)
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
func (c Command) chosen() ([]broken.Rule, error) {
	rules, err := broken.Rules()
	if err != nil || slices.Contains(c.Catch, everyRule) {
		return rules, err
	}
	var chosen []broken.Rule
	for _, name := range c.Catch {
		i := slices.IndexFunc(rules, func(r broken.Rule) bool { return r.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("no rule is called %q", name)
		}
		chosen = append(chosen, rules[i])
	}
	return chosen, nil
}

// caught says how a broken rule was noticed.
type caught struct {
	rule   broken.Rule
	runs   int
	seed   uint64           // of the last run
	found  *history.Finding // nil: it was not
	during []string         // the faults that were there then
}

// String is a row of a table.
func (c caught) String() string {
	if c.found == nil {
		return fmt.Sprintf("| %s | %s | **not in %d** | | | |", c.rule.Name, c.rule.Text, c.runs)
	}
	return fmt.Sprintf("| %s | %s | %d | %.1f s | %d | %s of %s, %s |", c.rule.Name, c.rule.Text, c.runs, c.found.At.Seconds(), c.seed,
		c.found.Verdict, c.found.Key, strings.Join(c.during, " and "))
}

func (c Command) catchOne(ctx context.Context, rule broken.Rule, l workload, log io.Writer) (caught, error) {
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

// buildBroken compiles a fleet in which a rule is broken, as build does.
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

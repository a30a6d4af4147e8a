package deploy

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

// scrape is the content of one program's /metrics.
type scrape struct {
	text     string
	families map[string]family
	series   []series
}

type family struct{ kind, help string }

type series struct {
	name   string
	labels map[string]string
}

var (
	headLine   = regexp.MustCompile(`^# (HELP|TYPE) (\S+) (.*)$`)
	seriesLine = regexp.MustCompile(`^([a-z_]+)(?:\{(.*)\})? \S+$`)
	labelPair  = regexp.MustCompile(`([a-z_]+)="((?:[^"\\]|\\.)*)"`)
)

func readScrape(t *testing.T, text string) scrape {
	t.Helper()
	s := scrape{text: text, families: map[string]family{}}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if head := headLine.FindStringSubmatch(line); head != nil {
			f := s.families[head[2]]
			if head[1] == "HELP" {
				f.help = head[3]
			} else {
				f.kind = head[3]
			}
			s.families[head[2]] = f
			continue
		}
		match := seriesLine.FindStringSubmatch(line)
		if match == nil {
			t.Fatalf("the test cannot parse: %s", line)
		}
		labels := map[string]string{}
		for _, pair := range labelPair.FindAllStringSubmatch(match[2], -1) {
			labels[pair[1]] = pair[2]
		}
		s.series = append(s.series, series{match[1], labels})
	}
	return s
}

func (s scrape) lint(t *testing.T) {
	problems, err := promlint.New(strings.NewReader(s.text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// row returns the metric's line of the list; "" for metrics of every Go program.
func (s scrape) row(name string) string {
	if !strings.HasPrefix(name, "deeplink_") {
		return ""
	}
	f := s.families[name]
	labels := slices.DeleteFunc(slices.Sorted(maps.Keys(s.labels(name))), func(l string) bool { return l == "le" })
	return fmt.Sprintf("| `%s` | %s | %s | %s |\n", name, f.kind, strings.Join(labels, ", "), f.help)
}

// labels returns the names of the labels of a metric's series.
func (s scrape) labels(name string) map[string]bool {
	all := map[string]bool{}
	for _, one := range s.of(name) {
		for label := range one.labels {
			all[label] = true
		}
	}
	return all
}

// of returns the series of a metric, including the suffixed ones of a histogram.
func (s scrape) of(name string) (all []series) {
	for _, one := range s.series {
		rest, ok := strings.CutPrefix(one.name, name)
		if ok && (rest == "" || s.families[name].kind == "histogram" && slices.Contains([]string{"_bucket", "_sum", "_count"}, rest)) {
			all = append(all, one)
		}
	}
	return all
}

var (
	selector = regexp.MustCompile(`\b(deeplink_\w+|go_\w+|process_\w+|up)\b(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`(\w+)(=~|!~|!=|=)"([^"]*)"`)
	grouping = regexp.MustCompile(`\b(?:by|without|on|ignoring) ?\(([^)]*)\)`)
)

// ofScraping are the labels that Prometheus adds.
var ofScraping = []string{"job", "instance", "le"}

// checkExpression requires that every metric of an expression exists, with the labels that it matches and groups by, and that each matched
// value occurs. It ignores statuses: the test provokes no errors.
func (s scrape) checkExpression(t *testing.T, expression string) {
	t.Helper()
	selectors := selector.FindAllStringSubmatch(expression, -1)
	if selectors == nil {
		t.Errorf("no metric found in %s", expression)
	}
	known := map[string]bool{}
	for _, found := range selectors {
		if found[1] == "up" { // of Prometheus itself
			continue
		}
		if !slices.ContainsFunc(s.series, func(one series) bool { return one.name == found[1] }) {
			t.Errorf("no program has %s: %s", found[1], expression)
			continue
		}
		maps.Copy(known, s.labels(found[1]))
		for _, m := range matcher.FindAllStringSubmatch(found[2], -1) {
			s.checkMatcher(t, found[1], m[1], m[2], m[3])
		}
	}
	for _, group := range grouping.FindAllStringSubmatch(expression, -1) {
		for label := range strings.SplitSeq(group[1], ",") {
			if label = strings.TrimSpace(label); !known[label] && !slices.Contains(ofScraping, label) {
				t.Errorf("no metric has the label %s: %s", label, expression)
			}
		}
	}
}

func (s scrape) checkMatcher(t *testing.T, name, label, operator, value string) {
	t.Helper()
	if slices.Contains(ofScraping, label) {
		return
	}
	if !s.labels(name)[label] {
		t.Errorf("%s has no label %s", name, label)
		return
	}
	if label == "status" || strings.HasPrefix(value, "$") {
		return
	}
	alternatives := []string{value}
	if strings.HasSuffix(operator, "~") {
		alternatives = strings.Split(value, "|")
	}
	for _, one := range alternatives {
		pattern := regexp.MustCompile("^(?:" + one + ")$")
		if !slices.ContainsFunc(s.of(name), func(s series) bool { return pattern.MatchString(s.labels[label]) }) {
			t.Errorf("%s has no series whose %s is %s", name, label, one)
		}
	}
}

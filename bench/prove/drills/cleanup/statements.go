package cleanup

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// span is how often the statements of a job ran, and the duration of the longest.
type span struct {
	n       int
	longest time.Duration
	all     []time.Duration
}

// since returns the difference between s and an earlier span.
func (s span) since(earlier span) (later span) {
	for _, took := range s.all[earlier.n:] {
		later.add(took)
	}
	return later
}

func (s *span) add(took time.Duration) {
	s.n++
	s.longest = max(s.longest, took)
	s.all = append(s.all, took)
}

// statements are the statements of control, from the log of Postgres.
type statements struct {
	n     int
	jobs  map[string]*span
	ended int // canceled by statement_timeout
}

func (s statements) of(j job) span {
	if found := s.jobs[j.name]; found != nil {
		return *found
	}
	return span{}
}

// readStatements reads the log of the server in that folder.
func readStatements(dir string) (statements, error) {
	log, err := os.Open(filepath.Join(dir, "postgres.log"))
	if err != nil {
		return statements{}, err
	}
	defer log.Close()
	return parseStatements(log)
}

// duration matches the first line of a statement. Postgres logs parsing, planning (bind) and execution separately; only execution takes
// long.
var duration = regexp.MustCompile(`LOG:  duration: ([0-9.]+) ms  (?:execute [^:]*|statement): (.*)$`)

// parseStatements reads a log. Continuation lines of a statement begin with a tab.
func parseStatements(log io.Reader) (s statements, err error) {
	s.jobs = make(map[string]*span)
	var took time.Duration
	var text strings.Builder
	begun := false
	finish := func() {
		if !begun {
			return
		}
		begun = false
		s.n++
		for _, job := range jobs {
			if strings.Contains(text.String(), job.statement) {
				if s.jobs[job.name] == nil {
					s.jobs[job.name] = new(span)
				}
				s.jobs[job.name].add(took)
			}
		}
		text.Reset()
	}
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "\t") {
			if begun {
				text.WriteString("\n" + line)
			}
			continue
		}
		finish()
		if strings.Contains(line, "canceling statement due to statement timeout") {
			s.ended++
		}
		if found := duration.FindStringSubmatch(line); found != nil {
			ms, err := strconv.ParseFloat(found[1], 64)
			if err != nil {
				return s, fmt.Errorf("%s: %w", line, err)
			}
			took = time.Duration(ms * float64(time.Millisecond))
			text.WriteString(found[2])
			begun = true
		}
	}
	finish()
	return s, lines.Err()
}

package events

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"deeplink/bench/prove/fleet"
)

// eventKey identifies an event.
type eventKey struct {
	orgKey string
	id     uuid.UUID
}

// archive is how often each event occurs.
type archive map[eventKey]int

// double returns how many events occur more than once.
func (a archive) double() (n int) {
	for _, times := range a {
		if times > 1 {
			n++
		}
	}
	return n
}

// table reads the stored events directly from Postgres.
func table(ctx context.Context, f *fleet.Fleet) (archive, error) {
	conn, err := pgx.Connect(ctx, f.Owner)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	const sql = `select o.org_key, e.id, count(*) from events e join organizations o on o.id = e.organization_id group by 1, 2`
	rows, err := conn.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	stored := make(archive)
	var k eventKey
	var times int
	_, err = pgx.ForEachRow(rows, []any{&k.orgKey, (*[16]byte)(&k.id), &times}, func() error {
		stored[k] = times
		return nil
	})
	return stored, err
}

// exported is the result of one `control events export`.
type exported struct {
	Lines int64         `json:"lines"`
	Bytes int64         `json:"bytes"`
	Took  time.Duration `json:"took"`
	// Peak is the peak resident memory of the process, in bytes.
	Peak int64 `json:"peak"`
}

// lineBegin is how each line of an export begins; the id follows.
const lineBegin = `{"id":"`

// idLength is the length of a UUID as text.
const idLength = 36

// export runs the operator's command for the events of an organization that arrived before until (zero: all events). It calls each with the
// id of every line.
func export(ctx context.Context, f *fleet.Fleet, orgKey string, until time.Time, each func(uuid.UUID)) (e exported, err error) {
	if until.IsZero() {
		until = time.Now().AddDate(1, 0, 0) // without --until, an export ends a minute ago
	}
	arguments := []string{"events", "export", "--format", "ndjson", "--org", orgKey, "--since", "2000-01-01",
		"--until", until.UTC().Format(time.RFC3339Nano)}
	cmd := f.Command(ctx, arguments...)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.StdoutPipe()
	if err != nil {
		return e, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return e, err
	}
	err = e.read(out, cmd.Process.Pid, each)
	if err != nil {
		_ = cmd.Process.Kill()
	}
	if err = errors.Join(err, cmd.Wait()); err != nil {
		return e, fmt.Errorf("control %s: %w: %s", strings.Join(arguments, " "), err, complaint.String())
	}
	e.Took = time.Since(began)
	return e, nil
}

// read reads lines to the end. It polls the peak memory, because /proc has nothing left of a process that has ended.
func (e *exported) read(out io.Reader, pid int, each func(uuid.UUID)) error {
	const look = 10_000
	lines := bufio.NewScanner(out)
	lines.Buffer(make([]byte, 64<<10), 1<<20)
	for lines.Scan() {
		line := lines.Bytes()
		if !bytes.HasPrefix(line, []byte(lineBegin)) || len(line) < len(lineBegin)+idLength {
			return fmt.Errorf("this line is no event: %s", line)
		}
		id, err := uuid.ParseBytes(line[len(lineBegin) : len(lineBegin)+idLength])
		if err != nil {
			return fmt.Errorf("this line has no id: %s", line)
		}
		each(id)
		if e.Lines%look == 0 {
			e.Peak = max(e.Peak, peakMemory(pid))
		}
		e.Lines++
		e.Bytes += int64(len(line)) + 1
	}
	return lines.Err()
}

// peakMemory returns the peak resident memory of a process in bytes, 0 when the process has ended. The rusage of wait does not serve: it
// includes the memory of this process at the time of the fork.
func peakMemory(pid int) int64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kilobytes, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return kilobytes << 10
		}
	}
	return 0
}

package cleanup

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"deeplink/deploy/stack"
	"deeplink/migrations"
	"deeplink/shared/testkit"
)

func TestStatementsAreReadFromTheLogOfPostgres(t *testing.T) {
	t.Parallel()
	s, err := parseStatements(strings.NewReader(`2026-11-23 19:00:00.000 UTC [1] LOG:  duration: 0.100 ms  parse stmtcache_1: select purge_audit_log()
2026-11-23 19:00:00.000 UTC [1] LOG:  duration: 12.500 ms  execute stmtcache_1: select purge_audit_log()
2026-11-23 19:00:00.000 UTC [1] DETAIL:  parameters: $1 = 'a'
2026-11-23 19:00:01.000 UTC [1] LOG:  duration: 1200.000 ms  execute stmtcache_2: 
	with gone as (delete from changes t where ctid >= $1::text::tid)
	select count(*) from gone
2026-11-23 19:00:02.000 UTC [1] LOG:  duration: 90.000 ms  execute <unnamed>: with gone as (delete from changes t where true)
2026-11-23 19:00:03.000 UTC [1] ERROR:  canceling statement due to statement timeout
2026-11-23 19:00:03.000 UTC [1] STATEMENT:  select 1
2026-11-23 19:00:04.000 UTC [1] LOG:  duration: 3.000 ms  statement: begin
`))
	if err != nil || s.n != 4 || s.ended != 1 {
		t.Fatalf("%+v, %v; expected four statements and one that was canceled", s, err)
	}
	changes, audit := s.of(jobs[0]), s.of(jobs[3])
	if changes.n != 2 || changes.longest != 1200*time.Millisecond || audit.n != 1 || audit.longest != 12500*time.Microsecond {
		t.Errorf("changes %+v, audit trail %+v", changes, audit)
	}
	if later := changes.since(span{n: 1}); later.n != 1 || later.longest != 90*time.Millisecond {
		t.Errorf("after the first: %+v", later)
	}
}

// Each table has old rows, and the statements of control can be attributed to their tables.
func TestPurgesDeleteEverythingThatWasFilled(t *testing.T) {
	testkit.Prove(t)
	s, closeAll, err := open(t.Context(), io.Discard)
	t.Cleanup(func() {
		if err := closeAll(); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	c := Command{Audit: 2000, Changes: 500, Others: 500}
	owner, old := c.prepare(t, s)
	for _, job := range jobs {
		if job.old != "" && old[job.name] == 0 {
			t.Errorf("%s: nothing to purge", job.name)
		}
	}
	dead, err := deadRows(t.Context(), owner)
	if _, found := dead["audit_log"]; err != nil || !found {
		t.Errorf("%v, %v; expected the partitions of the audit trail counted as one table", dead, err)
	}
}

func (c Command) prepare(t *testing.T, s *stack.Stack) (*pgx.Conn, map[string]int) {
	t.Helper()
	owner, err := pgx.Connect(t.Context(), s.Owner)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { owner.Close(context.Background()) })
	if _, err := migrations.To(t.Context(), s.Owner, beforePartitions); err != nil {
		t.Fatal(err)
	}
	if err := fillAudit(t.Context(), owner, c.Audit); err != nil {
		t.Fatal(err)
	}
	findings, err := migrate(t.Context(), s)
	if err != nil || len(findings) != 2 || !findings[1].Kept {
		t.Errorf("%+v, %v; expected no lost entry", findings, err)
	}
	if err := c.fill(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	old, err := oldRows(t.Context(), owner, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return owner, old
}

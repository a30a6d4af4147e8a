package clicks

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// closedLogs are the last logs of a directory that were shipped completely. After a restore of Postgres to an earlier state, such a log may be
// open there, without clicks that no edge has any more: it would hold asOf back for ever.
type closedLogs struct {
	path string // empty: memory, whose logs end with the process
	logs []closedLog
}

type closedLog struct {
	log      uuid.UUID
	sequence int32 // the last batch
	at       int64 // when it was closed, in milliseconds
}

const (
	closedFile = "closed"
	closedSize = 32
	// keptClosed is the number of logs that are kept. Each start of an edge closes one.
	keptClosed = 1 << 10
)

func (c closedLog) append(dst []byte) []byte {
	var e [closedSize]byte
	le := binary.LittleEndian
	copy(e[4:], c.log[:])
	le.PutUint32(e[20:], uint32(c.sequence))
	le.PutUint64(e[24:], uint64(c.at))
	le.PutUint32(e[:], crc32.Checksum(e[4:], castagnoli))
	return append(dst, e[:]...)
}

// readClosed reads the file of a directory. Damaged entries are left out.
func readClosed(dir string) (c closedLogs, err error) {
	c.path = filepath.Join(dir, closedFile)
	text, err := os.ReadFile(c.path)
	if errors.Is(err, os.ErrNotExist) {
		return c, nil
	}
	le := binary.LittleEndian
	for ; len(text) >= closedSize; text = text[closedSize:] {
		if le.Uint32(text) == crc32.Checksum(text[4:closedSize], castagnoli) {
			c.logs = append(c.logs, closedLog{uuid.UUID(text[4:20]), int32(le.Uint32(text[20:])), int64(le.Uint64(text[24:]))})
		}
	}
	return c, err
}

// add keeps one more log.
func (c *closedLogs) add(l closedLog) error {
	if c.path == "" {
		return nil
	}
	c.logs = append(c.logs, l)
	c.logs = c.logs[max(0, len(c.logs)-keptClosed):]
	var text []byte
	for _, l := range c.logs {
		text = l.append(text)
	}
	return writeDurably(c.path, text)
}

const selectReopened = `select l.log, l.slot, l.through, coalesce((select max(b.sequence) from click_batches b where b.log = l.log), 0)
	from click_logs l where l.log = any($1) and l.state <> 'closed'`

// closeAgain closes the logs that were closed before Postgres was restored to an earlier state, and reports what is missing of them as lost.
func (s *shipper) closeAgain(ctx context.Context) error {
	closed := s.recorder.store.closed.logs
	if len(closed) == 0 {
		return nil
	}
	of := make(map[uuid.UUID]closedLog, len(closed))
	ids := make([]uuid.UUID, 0, len(closed))
	for _, c := range closed {
		of[c.log] = c
		ids = append(ids, c.log)
	}
	type reopened struct {
		Log     uuid.UUID
		Slot    string
		Through time.Time
		Last    int32
	}
	bounded, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	rows, err := s.conn.Query(bounded, selectReopened, ids)
	if err != nil {
		return fmt.Errorf("look for logs that were closed: %w", err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[reopened])
	if err != nil {
		return fmt.Errorf("look for logs that were closed: %w", err)
	}
	for _, row := range found {
		at := time.UnixMilli(of[row.Log].at)
		if row.Last < of[row.Log].sequence {
			if err := s.reportLost(ctx, &log{meta: meta{Log: row.Log, Slot: row.Slot}}, row.Through, at); err != nil {
				return err
			}
			s.recorder.counts.lost.Add(1)
		}
		if err := s.exec(ctx, closeLog, row.Log, at); err != nil {
			return fmt.Errorf("close a log again: %w", err)
		}
	}
	return nil
}

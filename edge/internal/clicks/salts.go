package clicks

import (
	"context"
	"fmt"
	"time"

	"deeplink/shared/postgres"
)

const selectSalts = `select d, click_salt(d) from unnest($1::date[]) d`

// saltsAhead is how long before a day its salt is fetched.
const saltsAhead = 12 * time.Hour

// fetchSalts fetches the salts of the current day and, in time, of the next one.
func (s *shipper) fetchSalts(ctx context.Context) error {
	r := s.recorder
	now := time.UnixMilli(r.clock.at(time.Now())).UTC()
	if time.Since(s.salted) < time.Minute && r.saltFor(now.UnixMilli()) != nil {
		return nil
	}
	var days []time.Time
	for _, at := range []time.Time{now, now.Add(saltsAhead)} {
		if r.saltFor(at.UnixMilli()) == nil {
			days = append(days, at.Truncate(24*time.Hour))
		}
	}
	s.salted = time.Now()
	if len(days) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	rows, err := s.conn.Query(ctx, selectSalts, days)
	if err != nil {
		return fmt.Errorf("fetch salts: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var day time.Time
		var key []byte
		if err := rows.Scan(&day, &key); err != nil {
			return fmt.Errorf("fetch salts: %w", err)
		}
		of := dayOf(day.UnixMilli())
		r.salts[uint64(of)%uint64(len(r.salts))].Store(newSalt(of, key))
	}
	if err := rows.Err(); err != nil && postgres.Code(err) != "22023" { // the clocks are not on the same day
		return fmt.Errorf("fetch salts: %w", err)
	}
	return nil
}

package clicks

import (
	"regexp"
	"strings"
	"time"

	// Control has the time zone database built in: the machine may have none.
	_ "time/tzdata"
)

// Interval is the length of the rows of a time series. "" stands for no series.
type Interval string

const (
	NoInterval Interval = "none"
	Hourly     Interval = "hour"
	Daily      Interval = "day"
	Weekly     Interval = "week"
	Monthly    Interval = "month"
)

// Intervals are all intervals.
var Intervals = []Interval{NoInterval, Hourly, Daily, Weekly, Monthly}

// zoneName is the form of the names in the IANA database. Other spellings of a path, such as Europe//Berlin, would find a file, too.
var zoneName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*$`)

// Location returns the time zone with an IANA name. ok is false for any other text: the name of the machine's zone, an offset, and the files of
// a zone database that are not zones.
func Location(name string) (location *time.Location, ok bool) {
	switch {
	case !zoneName.MatchString(name) || name == "Local" || name == "localtime" || name == "posixrules" || name == "Factory" || len(name) > 64:
		return nil, false
	case strings.HasPrefix(name, "posix/") || strings.HasPrefix(name, "right/"): // those count leap seconds
		return nil, false
	}
	location, err := time.LoadLocation(name)
	return location, err == nil
}

// DateOf returns the date of an instant in a time zone, as a midnight in UTC. Arithmetic with dates needs that form: a zone may have no midnight
// on a date, and time.Time.AddDate then returns a time on the date before.
func DateOf(at time.Time, location *time.Location) time.Time {
	year, month, date := at.In(location).Date()
	return time.Date(year, month, date, 0, 0, 0, 0, time.UTC)
}

// StartOf returns the first instant of a date in a time zone. Where a change of the offset skips midnight, that is the moment of the change. Only
// the date of of is used.
func StartOf(of time.Time, location *time.Location) time.Time {
	year, month, date := of.Date()
	midnight := time.Date(year, month, date, 0, 0, 0, 0, time.UTC)
	// No zone is more than 15 hours from UTC, and none changes its offset twice in the two days around a midnight.
	for at := midnight.Add(-26 * time.Hour); ; {
		start, end := at.In(location).ZoneBounds()
		_, offset := at.In(location).Zone()
		local := midnight.Add(-time.Duration(offset) * time.Second)
		if local.Before(start) {
			local = start
		}
		if end.IsZero() || local.Before(end) {
			return local.UTC()
		}
		at = end
	}
}

// next returns the end of the interval of a series that contains the instant at.
func next(at time.Time, interval Interval, location *time.Location) time.Time {
	local := at.In(location)
	if interval == Hourly {
		_, offset := local.Zone()
		shift := time.Duration(offset) * time.Second
		end := at.Add(shift).Truncate(time.Hour).Add(time.Hour - shift)
		// An hour has one offset: a change of the offset ends it.
		if _, change := local.ZoneBounds(); !change.IsZero() && change.Before(end) {
			end = change
		}
		return end.UTC()
	}
	first := DateOf(at, location)
	step := func(t time.Time) time.Time { return t.AddDate(0, 0, 1) }
	switch interval {
	case Weekly:
		monday := (int(first.Weekday()) + 6) % 7
		first = first.AddDate(0, 0, -monday)
		step = func(t time.Time) time.Time { return t.AddDate(0, 0, 7) }
	case Monthly:
		first = first.AddDate(0, 0, 1-first.Day())
		step = func(t time.Time) time.Time { return t.AddDate(0, 1, 0) }
	}
	// More than one step is needed where the clock was set back across midnight, and for a date that a zone skipped.
	for {
		first = step(first)
		if end := StartOf(first, location); end.After(at) {
			return end
		}
	}
}

// bounds returns the starts of at most limit intervals in [from, to), and the end of the last one. more: others follow.
func bounds(from, to time.Time, interval Interval, location *time.Location, limit int) (all []time.Time, more bool) {
	at := from
	for len(all) < limit && at.Before(to) {
		all = append(all, at)
		at = next(at, interval, location)
	}
	if at.After(to) {
		at = to
	}
	return append(all, at), at.Before(to)
}

// isMidnight reports whether a day (UTC) starts at this instant.
func isMidnight(at time.Time) bool { return at.Equal(dayOf(at)) }

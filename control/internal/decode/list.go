package decode

import "strings"

// List returns the values of a parameter that may have several, separated by commas or repeated. given reports whether it is present.
func (q *Query) List(name string) (values []string, given bool) {
	for _, value := range q.values[name] {
		given = true
		values = append(values, strings.Split(value, ",")...)
	}
	return values, given
}

// Given returns the value of a parameter as it was sent, "" when it is absent or given twice. It adds no error.
func (q *Query) Given(name string) string {
	if values := q.values[name]; len(values) == 1 {
		return values[0]
	}
	return ""
}

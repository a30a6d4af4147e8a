package session

// Role is what a user is in the active organization.
type Role string

// The roles, each with the rights of those before it.
const (
	// NoRole has no rights: the token names no role, or one that is not known here.
	NoRole Role = ""
	Member Role = "member"
	Admin  Role = "admin"
	Owner  Role = "owner"
)

// AtLeast reports whether r has the rights of least. Nothing has those of a role that is none.
func (r Role) AtLeast(least Role) bool { return least.rank() > 0 && r.rank() >= least.rank() }

func (r Role) rank() int {
	switch r {
	case Member:
		return 1
	case Admin:
		return 2
	case Owner:
		return 3
	}
	return 0
}

// roleOf returns the role that a token names.
func roleOf(name string) Role {
	if Role(name).rank() == 0 {
		return NoRole
	}
	return Role(name)
}

package session

// Role is the user's role in the active organization.
type Role string

// The roles, each with the rights of those before it.
const (
	// NoRole has no rights: the token names no role or an unknown one.
	NoRole Role = ""
	Member Role = "member"
	Admin  Role = "admin"
	Owner  Role = "owner"
)

// AtLeast reports whether r has the rights of least. It is false if least is not a role.
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

// roleOf returns the role with the name that a token contains.
func roleOf(name string) Role {
	if Role(name).rank() == 0 {
		return NoRole
	}
	return Role(name)
}

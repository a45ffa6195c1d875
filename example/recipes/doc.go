// Package recipes is the code of docs/recipes.md: every block of that page stands here, or in service, and is
// tested. It is a module of its own, so that wllock does not depend on a scheduler or an ORM. Copy what you need.
package recipes

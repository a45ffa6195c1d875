// Package parts has what several backends are made of: the background tasks that Close waits for, fences drawn from blocks, those who
// observe exchanges, and checks of what is asked.
package parts

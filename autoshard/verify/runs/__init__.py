"""Does a plan's program, lowered, compiled and run, do what the plan says?"""

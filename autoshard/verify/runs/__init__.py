"""Does what is compiled and run agree with the plan?"""

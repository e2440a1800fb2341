"""Scripts of cache operations: how the cache is taught, debugged and compared with others, without a model.

`reader` turns JSON text into the frozen values of `operations`, or refuses it; `session` carries them out
on a real `CacheManager`. A session plays the part of the scheduler and knows tokens only by number.
"""
